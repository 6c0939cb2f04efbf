"""The bytes of one shard: a table of where samples lie, with a CRC-32 of each, then the samples.

    magic (8)  samples n (u64)  n + 1 offsets (u64, from the file's start)  n CRCs (u32)  CRC of all this (u32)  samples

All numbers are little-endian. A reader needs the table and one read a sample; a damaged sample is found when it is
read, by itself, so that the rest of its shard stays of use.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence

MAGIC = b"RZSHARD1"
HEAD = struct.Struct("<8sQ")
CRC = struct.Struct("<I")


def table_bytes(samples: int) -> int:
    """Bytes before the first sample."""
    return HEAD.size + 8 * (samples + 1) + 4 * samples + CRC.size


def build(samples: Sequence[bytes]) -> bytes:
    """A whole shard."""
    offsets = array("Q", [table_bytes(len(samples))])
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    checks = array("I", map(zlib.crc32, samples))
    if sys.byteorder == "big":
        offsets.byteswap()
        checks.byteswap()
    table = HEAD.pack(MAGIC, len(samples)) + offsets.tobytes() + checks.tobytes()
    return b"".join([table, CRC.pack(zlib.crc32(table)), *samples])


class Table:
    """Where the samples of a shard lie."""

    def __init__(self, raw: bytes) -> None:
        """``raw`` is a shard's first :func:`table_bytes`. Raises ValueError with what is wrong."""
        if len(raw) < HEAD.size + CRC.size:
            raise ValueError(f"{len(raw)} bytes are no shard")
        magic, samples = HEAD.unpack_from(raw)
        if magic != MAGIC:
            raise ValueError(f"it begins with {magic!r} instead of {MAGIC!r}")
        if len(raw) != table_bytes(samples):
            raise ValueError(f"its table speaks of {samples} samples, which the index does not")
        if zlib.crc32(raw[: -CRC.size]) != CRC.unpack(raw[-CRC.size :])[0]:
            raise ValueError("its table is damaged")
        self.offsets = array("Q", raw[HEAD.size : HEAD.size + 8 * (samples + 1)])
        self.checks = array("I", raw[HEAD.size + 8 * (samples + 1) : -CRC.size])
        if sys.byteorder == "big":
            self.offsets.byteswap()
            self.checks.byteswap()

    def __len__(self) -> int:
        return len(self.checks)

    def place(self, number: int) -> tuple[int, int]:
        """Offset and length of a sample, bytes."""
        return self.offsets[number], self.offsets[number + 1] - self.offsets[number]

    def is_whole(self, number: int, raw: bytes) -> bool:
        """Whether ``raw`` is what was packed as this sample."""
        return zlib.crc32(raw) == self.checks[number]
