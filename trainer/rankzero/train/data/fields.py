"""What a sample is made of, and its bytes in a shard. No PyTorch here."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

ARRAY_KINDS = {"uint8": "B", "uint16": "H", "uint32": "I", "int32": "i", "int64": "q"}
"""Kinds of field that hold numbers in a row, little-endian, with their codes in :mod:`struct`."""
FIXED_KINDS = {"int": "<q", "float": "<d"}
LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Field:
    """One part of every sample: int and float are 64 bits wide, text is UTF-8, the other kinds are rows of numbers."""

    name: str
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"field {self.name!r} is of kind {self.kind!r}; allowed: {', '.join(KINDS)}")


def _numbers(code: Any, raw: bytes) -> memoryview:
    return memoryview(raw).cast(code)


_ENCODE: dict[str, Callable[[Any], bytes]] = {
    "bytes": bytes,
    "text": lambda value: str(value).encode(),
    "json": lambda value: value if isinstance(value, bytes) else json.dumps(value).encode(),
    **dict.fromkeys(ARRAY_KINDS, bytes),
}
_DECODE: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda raw: raw,
    "text": lambda raw: raw.decode(),
    "json": json.loads,
    **{kind: partial(_numbers, code) for kind, code in ARRAY_KINDS.items()},
}
KINDS = (*FIXED_KINDS, *_ENCODE)


def encode(fields: Sequence[Field], sample: Mapping[str, Any]) -> bytes:
    """The sample's bytes: numbers as they are, all else with its length before it. Raises KeyError, TypeError."""
    parts = []
    for field in fields:
        value = sample[field.name]
        if (layout := FIXED_KINDS.get(field.kind)) is not None:
            parts.append(struct.pack(layout, value))
        else:
            raw = _ENCODE[field.kind](value)
            parts += [LENGTH.pack(len(raw)), raw]
    return b"".join(parts)


def decode(fields: Sequence[Field], raw: bytes) -> dict[str, Any]:
    """What :func:`encode` was given, rows of numbers as memoryviews. Raises ValueError where it is not that."""
    sample: dict[str, Any] = {}
    at = 0
    try:
        for field in fields:
            if (layout := FIXED_KINDS.get(field.kind)) is not None:
                (sample[field.name],) = struct.unpack_from(layout, raw, at)
                at += 8
            else:
                (length,) = LENGTH.unpack_from(raw, at)
                start, at = at + LENGTH.size, at + LENGTH.size + length
                if at > len(raw):
                    raise ValueError(f"field {field.name} ends at byte {at} of {len(raw)}")
                sample[field.name] = _DECODE[field.kind](raw[start:at])
    except (struct.error, TypeError) as error:
        raise ValueError(f"field {field.name}: {error}") from error
    if at != len(raw):
        raise ValueError(f"{len(raw) - at} bytes are left over")
    return sample
