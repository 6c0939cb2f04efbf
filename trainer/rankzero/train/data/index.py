"""``index.json``: what a packed data set holds, written last, so that a half packed one has none."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from rankzero.errors import DataError
from rankzero.train.data.fields import Field

INDEX_FILE = "index.json"
FORMAT, VERSION = "rankzero-shards", 1
AGAIN = "pack the data again: rankzero pack --help"


@dataclass(frozen=True)
class Shard:
    """One file."""

    name: str
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Index:
    """A whole data set. ``about`` is what the packer noted for people and scripts, e.g. the names of classes."""

    fields: tuple[Field, ...]
    shards: tuple[Shard, ...]
    source: str
    """Hash of what was packed and how: packing the same again is no work."""
    about: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def samples(self) -> int:
        """Samples in all."""
        return sum(shard.samples for shard in self.shards)

    @cached_property
    def fingerprint(self) -> str:
        """Names the data by their content: 16 hexadecimal digits."""
        return hashlib.sha256("".join(shard.sha256 for shard in self.shards).encode()).hexdigest()[:16]

    def dump(self) -> bytes:
        """The file."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "samples": self.samples,
            "bytes": sum(shard.bytes for shard in self.shards),
            "source": self.source,
            "about": self.about,
            "fields": [asdict(one) for one in self.fields],
            "shards": [asdict(one) for one in self.shards],
        }
        return json.dumps(document, indent=1).encode() + b"\n"


def load(raw: bytes, path: str) -> Index:
    """Read the file. Raises :class:`DataError` where it is none, damaged, or of a later version."""
    try:
        document = json.loads(raw)
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r} instead of {FORMAT!r}")
        if document["version"] != VERSION:
            raise DataError(
                f"{path} has version {document['version']!r}; this rankzero reads {VERSION}",
                hint=f"use the rankzero that packed it, or {AGAIN}",
            )
        index = Index(
            fields=tuple(Field(**one) for one in document["fields"]),
            shards=tuple(Shard(**one) for one in document["shards"]),
            source=document["source"],
            about=document["about"],
        )
        if index.samples != document["samples"]:
            raise ValueError(f"its shards add up to {index.samples} samples instead of {document['samples']}")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, KeyError):
            error = KeyError(f"it lacks {error}")
        raise DataError(f"{path} is not the index of a packed data set: {error}", hint=AGAIN) from error
    return index
