"""A packed data set for tests: each sample is its number, and some bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankzero.train.data.fields import Field
from rankzero.train.data.pack.pack import pack
from rankzero.train.data.sources import Source


class Numbers:
    """The numbers from 0 on, with as many bytes as are asked for."""

    def __init__(self, count: int, size: int) -> None:
        self.fields: tuple[Field, ...] = (Field("n", "int"), Field("row", "uint16"), Field("bytes", "bytes"))
        self.about: dict[str, Any] = {}
        self.fingerprint = f"{count} of {size}"
        self._count, self._size = count, size

    def __len__(self) -> int:
        return self._count

    def read(self, number: int) -> dict[str, Any]:
        return {
            "n": number,
            "row": number.to_bytes(2, "little") * (number % 3),
            "bytes": bytes([number % 256]) * self._size,
        }


def numbers(url: Path | str, count: int, *, shards: int, size: int = 10) -> str:
    """Pack the numbers up to ``count`` in their order; returns where."""
    pack(Numbers(count, size), Source(str(url)), shards=shards, seed=None)
    return str(url)
