"""Checksums of files in blocks, as they stand in the manifest of a checkpoint. No torch here."""

from __future__ import annotations

import zlib
from typing import Any

BLOCK = 64 * 2**20
"""Bytes of a file that have a checksum, CRC-32, of their own."""


class Sums:
    """Size and checksums of a file while it is written or read."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[str] = []
        self._sum = 0

    def add(self, data: memoryview) -> None:
        """Bytes that come next."""
        while data:
            part = data[: BLOCK - self.size % BLOCK]
            self._sum = zlib.crc32(part, self._sum)
            self.size += len(part)
            if self.size % BLOCK == 0:
                self._blocks.append(f"{self._sum:08x}")
                self._sum = 0
            data = data[len(part) :]

    @property
    def description(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        rest = [f"{self._sum:08x}"] if self.size % BLOCK or not self.size else []
        return {"size": self.size, "crc32": self._blocks + rest}
