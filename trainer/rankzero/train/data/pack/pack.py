"""Write shards of numbered items, one after the other, and go on where a killed packing was."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rankzero.errors import ConfigError, DataError
from rankzero.train.data import index as index_file
from rankzero.train.data import layout
from rankzero.train.data.fields import encode
from rankzero.train.data.index import INDEX_FILE, Index, Shard
from rankzero.train.data.pack.items import BadItemError, Items
from rankzero.train.data.sources import Source

JOURNAL_FILE = "packing.json"
"""How far a packing is; gone when it is done."""
JOURNAL_EVERY = 5.0
"""Seconds between two writings of it, and so the work that a kill costs at most, beside one shard."""

Report = Callable[[int, int], None]
"""Is told how many items are packed, of how many."""


@dataclass
class Journal:
    """How far a packing is."""

    source: str
    position: int = 0
    """Items dealt with, in the order of packing."""
    bad: int = 0
    shards: list[Shard] = field(default_factory=list)


def pack(
    items: Items,
    out: Source,
    *,
    shard_bytes: int = 64 << 20,
    shards: int = 64,
    seed: int | None = 0,
    max_bad: int = 0,
    report: Report | None = None,
    journal_every: float = JOURNAL_EVERY,
    anew: bool = False,
) -> Index:
    """Have all ``items`` in ``out`` and return the index. One process calls it.

    There are about ``shards`` shards of the same number of samples; one that has reached ``shard_bytes`` ends earlier.
    ``seed`` mixes the items, which training needs where neighbours are alike, since a reader mixes a few shards at a
    time only; None keeps their order. The same input and options give the same bytes, also where the packing was
    killed and called again in between; where all is done already nothing is written. ``anew`` drops what ``out``
    holds of other input. Raises :class:`DataError` for an item that cannot be packed, once there are more than
    ``max_bad`` such, and :class:`ConfigError` where ``out`` holds other data, or there is no item.
    """
    if not len(items):
        raise ConfigError("there is nothing to pack: the input holds no whole sample", hint="name other files")
    per_shard = -(-len(items) // shards)
    how = json.dumps([items.fingerprint, per_shard, shard_bytes, seed, [asdict(one) for one in items.fields]])
    source = hashlib.sha256(how.encode()).hexdigest()
    if anew:
        _drop_others(out, source)
    if (done := _finished(out, source)) is not None:
        return done
    journal = _begin(out, source)
    order = array("Q", range(len(items)))
    if seed is not None:
        random.Random(seed).shuffle(order)  # noqa: S311 -- no secret
    pending: list[bytes] = []
    size, noted = 0, time.monotonic()
    for position in range(journal.position, len(order)):
        try:
            raw = encode(items.fields, items.read(order[position]))
        except BadItemError as error:
            journal.bad += 1
            _complain(error, journal.bad, max_bad)
        else:
            pending.append(raw)
            size += len(raw)
        full = len(pending) == per_shard or size >= shard_bytes
        if full or (pending and position + 1 == len(order)):
            journal.shards.append(_write_shard(out, len(journal.shards), pending))
            journal.position = position + 1
            pending, size = [], 0
            if time.monotonic() - noted >= journal_every:
                out.write(JOURNAL_FILE, json.dumps(asdict(journal)).encode())
                noted = time.monotonic()
        if report is not None:
            report(position + 1, len(order))
    if not journal.shards:
        raise DataError(f"none of {len(order)} items could be packed", hint="see the lines above")
    packed = Index(items.fields, tuple(journal.shards), source, items.about)
    out.write(INDEX_FILE, packed.dump())
    out.remove(JOURNAL_FILE)
    return packed


def _write_shard(out: Source, number: int, samples: list[bytes]) -> Shard:
    data = layout.build(samples)
    shard = Shard(f"shard-{number:06d}.rz", len(samples), len(data), hashlib.sha256(data).hexdigest())
    out.write(shard.name, data)
    return shard


def _complain(error: BadItemError, bad: int, max_bad: int) -> None:
    if bad > max_bad:
        raise DataError(
            f"{error} ({bad} bad so far, {max_bad} allowed)",
            hint="leave out a few: --max-bad N; or mend or remove it and begin again: --anew",
        ) from error
    sys.stderr.write(f"left out: {error}\n")


def _drop_others(out: Source, source: str) -> None:
    """Remove what was packed of other input; the files that say so go first, so that a kill leaves no half of it.

    Shards are written over; those that would be left are removed where they can be seen, in a folder.
    """
    told = f'"source": "{source}"'.encode()
    found = []
    for name in (INDEX_FILE, JOURNAL_FILE):
        with contextlib.suppress(FileNotFoundError):
            found.append((name, out.read(name)))
    if all(told in raw for _, raw in found):
        return
    for name, _ in found:
        out.remove(name)
    for path in out.folder.glob("shard-*.rz") if out.folder is not None else ():
        out.remove(path.name)


def _finished(out: Source, source: str) -> Index | None:
    try:
        found = index_file.load(out.read(INDEX_FILE), out.path(INDEX_FILE))
    except FileNotFoundError:
        return None
    if found.source != source:
        raise ConfigError(
            f"{out.url} holds other data already, or the same packed in another way",
            hint="choose another place, or drop it: --anew",
        )
    return found


def _begin(out: Source, source: str) -> Journal:
    try:
        raw = out.read(JOURNAL_FILE)
    except FileNotFoundError:
        journal = Journal(source)
        out.write(JOURNAL_FILE, json.dumps(asdict(journal)).encode())
        return journal
    path = out.path(JOURNAL_FILE)
    try:
        found: dict[str, Any] = json.loads(raw)
        journal = Journal(**{**found, "shards": [Shard(**one) for one in found["shards"]]})
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="pack again with --anew") from error
    if journal.source != source:
        raise ConfigError(
            f"{path} tells of a packing of other data, or in another way, that has not ended",
            hint="call it again as it was, choose another place, or drop it: --anew",
        )
    return journal
