"""Shards on a node's own disk: fetched once for all ranks of the node, verified, and the least recently used dropped.

The folder may be shared by any number of processes, of several pods too (``cachePath`` of a data set). All they know of
each other is in it: a file lock around each fetch and one around making room; both end with their process. A file has
its name only when it is whole. What is dropped while it is read keeps its space until its
reader opens the next shard.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankzero.errors import ConfigError, DataError
from rankzero.train.data.index import Shard
from rankzero.train.data.shard_file import BadSampleError, first_damage
from rankzero.train.data.sources import Source

PART = ".part"
"""Ends the name of a file that is being fetched: NAME.SIZE.part, so that others can count its whole size."""
LOCK_FILE = "lock"


class Cache:
    """One folder, at most ``limit`` bytes of shards (0: no limit)."""

    def __init__(self, folder: Path, limit: int = 0) -> None:
        self.folder = folder
        self.limit = limit

    def path(self, data: str, shard: Shard) -> Path:
        """Where a shard of the data set with fingerprint ``data`` is, if it is there."""
        return self.folder / data / shard.name

    def fetch(self, source: Source, data: str, shard: Shard) -> Path:
        """Have the shard here, and return where. Any process may call it; one fetches, the others wait for it.

        Raises :class:`BadSampleError` where the source lacks it or has other bytes than the index says,
        :class:`DataError` where it cannot be read or the disk is full, :class:`ConfigError` where it is larger than the
        cache may be.
        """
        path = self.path(data, shard)
        with self._alone(path.with_name(f"{shard.name}.{shard.bytes}{PART}")) as part:
            if not path.exists():
                self._make_room(shard.bytes, part)
                try:
                    raw = source.read(shard.name)
                except FileNotFoundError as error:
                    raise BadSampleError(source.path(shard.name), 0, "there is no such file") from error
                verify(source.path(shard.name), raw, shard)
                self._write(part, raw)
                part.rename(path)
        return path

    def drop(self, data: str, shard: Shard) -> None:
        """Forget a shard that turned out to be damaged here."""
        self.path(data, shard).unlink(missing_ok=True)

    @contextmanager
    def _alone(self, part: Path) -> Iterator[Path]:
        """Hold the lock of a file that is being fetched, which is that file itself: its fetcher's death frees it."""
        part.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(part, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(descriptor, part):
                break
            _release(descriptor)  # meanwhile it was renamed or removed: this lock is on something else now
        try:
            yield part
        finally:
            if _is_still(descriptor, part):
                part.unlink()
            _release(descriptor)

    def _make_room(self, size: int, part: Path) -> None:
        if not self.limit:
            return
        if size > self.limit:
            raise ConfigError(
                f"a shard of {size} bytes does not fit into the cache {self.folder} of {self.limit}",
                hint="raise train.dataLoader.cacheSize, or pack into smaller shards",
            )
        lock = os.open(self.folder / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._evict(self.limit - size, part)
            # From here on others count this shard: its part is held by a living process.
            os.truncate(part, 1)
        finally:
            _release(lock)

    def _evict(self, bound: int, mine: Path) -> None:
        """Drop least recently used shards until those that are left, and those on their way, have ``bound`` bytes."""
        whole: list[tuple[float, int, Path]] = []
        used = 0
        for folder in (entry for entry in os.scandir(self.folder) if entry.is_dir()):
            for entry in os.scandir(folder):
                path = Path(entry.path)
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    if not path.name.endswith(PART):
                        used += status.st_size
                        whole.append((status.st_mtime, status.st_size, path))
                    elif path != mine and status.st_size and not _remove_if_abandoned(path):
                        used += int(path.name.removesuffix(PART).rpartition(".")[2])
        for _, size, path in sorted(whole):
            if used <= bound:
                return
            path.unlink(missing_ok=True)
            used -= size

    def _write(self, part: Path, raw: bytes) -> None:
        try:
            with part.open("r+b") as file:  # never empty: others would not count it
                file.write(raw)
                file.truncate()
        except OSError as error:
            free = shutil.disk_usage(self.folder).free
            raise DataError(
                f"cannot write the cache {part}: {error.strerror}; {free} bytes are free",
                hint="give it more space (cacheSize of the data set), or lower train.dataLoader.cacheSize",
            ) from error


def room(folder: Path) -> int:
    """Bytes that the disk of ``folder`` has for it: what is free, and what it holds already."""
    folder.mkdir(parents=True, exist_ok=True)
    held = sum(path.stat().st_size for path in folder.glob("*/*") if path.is_file())
    return shutil.disk_usage(folder).free + held


def verify(path: str, raw: bytes, shard: Shard) -> None:
    """Raises :class:`BadSampleError` where these are not the bytes that were packed."""
    if len(raw) != shard.bytes:
        raise BadSampleError(path, min(len(raw), shard.bytes), f"it has {len(raw)} bytes, {shard.bytes} were packed")
    if hashlib.sha256(raw).hexdigest() != shard.sha256:
        raise BadSampleError(path, first_damage(raw, shard.samples), "its SHA-256 is not that of index.json")


def _release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor too, and the lock
    os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_if_abandoned(part: Path) -> bool:
    """Remove what a process that has died was fetching."""
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_still(descriptor, part):
            part.unlink()
    except BlockingIOError:
        return False
    finally:
        _release(descriptor)
    return True
