"""Files that are written past the page cache, summed on the way, and durable when they are closed.

A save that goes through the page cache costs the training more than its copies do: the kernel needs a page for each
one written, and throws out others that the data reader will want. From a buffer at a page boundary the volume takes
the bytes itself (O_DIRECT); where it cannot, as on some network file systems, they go through the cache after all.

The sums are of what was meant to be written, not of what can be read back from the cache: they also tell of bytes that
went wrong on their way to the volume.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from rankzero.sums import Sums
from rankzero.train.checkpoint.manifest import Files

PIECE = 16 * 2**20
"""Bytes that are collected and written at once: the memory that writing takes."""


class SummedFile:
    """One file, written once from its beginning to its end. As much of a binary stream as torch's writers use."""

    def __init__(self, path: Path) -> None:
        self._piece = memoryview(mmap.mmap(-1, PIECE))
        self._filled = 0
        self._sums = Sums()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags | os.O_DIRECT, 0o666)
        except OSError:  # they refuse it by several names; what is truly wrong fails again
            self._file = os.open(path, flags, 0o666)

    @property
    def description(self) -> dict[str, Any]:
        """As in a manifest, when the file is closed."""
        return self._sums.description

    def tell(self) -> int:
        """Bytes written so far."""
        return self._sums.size + self._filled

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Returns how many bytes ``data`` has. Raises OSError."""
        source = memoryview(data).cast("B")
        taken = 0
        while taken < len(source):
            count = min(PIECE - self._filled, len(source) - taken)
            self._piece[self._filled : self._filled + count] = source[taken : taken + count]
            self._filled += count
            taken += count
            if self._filled == PIECE:
                self._put()
        return taken

    def flush(self) -> None:
        """Torch does so after each tensor; what is not a whole piece waits for more."""

    def close(self) -> None:
        """Write the rest; all of it is durable then. Raises OSError."""
        if self._file < 0:
            return
        self._through_the_cache()  # its length is no multiple of the volume's blocks
        self._put()
        os.fsync(self._file)
        self.abandon()

    def abandon(self) -> None:
        """Close without anything else; no error where it is closed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self) -> None:
        left = self._piece[: self._filled]
        self._sums.add(left)
        self._filled = 0
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except OSError:
                if not self._is_direct:
                    raise
                self._through_the_cache()  # a volume with other boundaries, or one that took a part of the piece

    @property
    def _is_direct(self) -> bool:
        return bool(fcntl.fcntl(self._file, fcntl.F_GETFL) & os.O_DIRECT)

    def _through_the_cache(self) -> None:
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) & ~os.O_DIRECT)


class Writer(FileSystemWriter):
    """torch.distributed.checkpoint's writer, with files of this kind."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sync_files=False)  # closing one does
        self._files = _Files()
        self.fs = self._files

    @property
    def described(self) -> Files:
        """What has been written, as in a manifest."""
        return dict(self._files.described)


class _Files(FileSystem):
    def __init__(self) -> None:
        self.described: Files = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        assert mode == "wb"
        file = SummedFile(Path(path))
        try:
            yield file
            file.close()
        finally:
            file.abandon()
        self.described[Path(path).name] = file.description
