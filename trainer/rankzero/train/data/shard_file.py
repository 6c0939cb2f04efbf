"""One open shard: a descriptor and its table. Damage is found sample by sample and named by path and offset."""

from __future__ import annotations

import os
from pathlib import Path

from rankzero.errors import DataError
from rankzero.train.data.index import Shard
from rankzero.train.data.layout import Table, table_bytes

MEND = "restore or pack the shard again, or let a run leave out a few such samples: train.dataLoader.maxBadSamples"


class BadSampleError(DataError):
    """A sample cannot be read: ``path`` is its shard, ``offset`` where in it the trouble begins, bytes."""

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(f"bad shard {path}, offset {offset}: {problem}", hint=MEND)
        self.path, self.offset, self.problem = path, offset, problem

    def __reduce__(self) -> tuple[type[BadSampleError], tuple[str, int, str]]:
        return BadSampleError, (self.path, self.offset, self.problem)


def first_damage(raw: bytes, samples: int) -> int:
    """Offset of the first damaged sample of a whole shard's bytes; 0 where its table is damaged."""
    try:
        table = Table(raw[: table_bytes(samples)])
    except ValueError:
        return 0
    places = map(table.place, range(samples))
    return next((at for n, (at, length) in enumerate(places) if not table.is_whole(n, raw[at : at + length])), 0)


class ShardFile:
    """A shard on a file system. Reads go by position, so that forked processes may share it."""

    def __init__(self, path: Path, shard: Shard) -> None:
        """Raises :class:`BadSampleError` where it is missing or its table is damaged: no sample is readable."""
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BadSampleError(str(path), 0, f"{error.strerror}") from error
        try:
            self._table = Table(self._read(0, table_bytes(shard.samples)))
        except ValueError as error:
            self.close()
            raise BadSampleError(str(path), 0, str(error)) from error
        except BadSampleError:
            self.close()
            raise

    def sample(self, number: int) -> bytes:
        """A sample as it was packed. Raises :class:`BadSampleError`."""
        offset, length = self._table.place(number)
        raw = self._read(offset, length)
        if not self._table.is_whole(number, raw):
            problem = f"sample {number} of {length} bytes does not have the checksum that it was packed with"
            raise BadSampleError(str(self._path), offset, problem)
        return raw

    def is_deleted(self) -> bool:
        """Whether its name is gone and only this descriptor keeps it on the disk."""
        return os.fstat(self._descriptor).st_nlink == 0

    def touch(self) -> None:
        """Say that it is in use; best effort."""
        try:
            os.utime(self._descriptor)
        except OSError:
            return

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)

    def _read(self, offset: int, length: int) -> bytes:
        try:
            raw = os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise BadSampleError(str(self._path), offset, f"{error.strerror}") from error
        if len(raw) < length:
            end = os.fstat(self._descriptor).st_size
            raise BadSampleError(str(self._path), offset, f"the file ends at {end}, before {offset + length}")
        return raw
