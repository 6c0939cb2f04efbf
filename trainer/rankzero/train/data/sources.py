"""Where shards are: a folder (PVC, NFS, hostPath), an object store, or whatever else fsspec knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rankzero import objects
from rankzero.errors import ConfigError, DataError
from rankzero.files import write_bytes

FORK_SAFE = ("memory",)
"""Protocols of fsspec whose file systems have no threads that a fork would lose."""


class Source:
    """A folder or the objects below a URL."""

    def __init__(self, url: str) -> None:
        """Touches nothing yet. Raises :class:`ConfigError` for a URL that nothing here can read."""
        self.url = url.rstrip("/") or url
        scheme, separator, rest = url.partition("://")
        self.protocol = scheme if separator else "file"
        self.folder: Path | None = None
        if self.protocol == "file":
            self.folder = Path(rest if separator else url)
        else:
            self._files = (_ObjectStore if self.protocol in objects.BY_OBSTORE else _FileSystem)(
                self.url, self.protocol
            )
        self._process = os.getpid()

    def path(self, name: str) -> str:
        """What errors call a file of it."""
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes:
        """A whole file. Raises FileNotFoundError where there is none, :class:`DataError` where it cannot be read."""
        if self.folder is not None:
            found: bytes = self._attempt(name, (self.folder / name).read_bytes)
            return found
        if os.getpid() != self._process and self.protocol not in FORK_SAFE:
            return self._read_apart(name)
        return bytes(self._attempt(name, lambda: self._files.read(name)))

    def write(self, name: str, data: bytes) -> None:
        """Have a file whole or not at all. Raises :class:`DataError`."""
        folder = self.folder
        try:
            if folder is not None:
                self._attempt(name, lambda: write_bytes(folder / name, data))
            else:
                self._attempt(name, lambda: self._files.write(name, data))
        except FileNotFoundError as error:  # what is missing is a place to write to
            raise DataError(f"cannot write {error}", hint=f"is there a folder or bucket {self.url}?") from error

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Raises :class:`DataError`."""
        folder = self.folder
        if folder is not None:
            self._attempt(name, lambda: (folder / name).unlink(missing_ok=True))
        else:
            self._attempt(name, lambda: self._files.remove(name))

    def _attempt(self, name: str, action: Any) -> Any:
        try:
            return action()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(f"{self.path(name)}: no such file") from error
        except Exception as error:  # each object store has exceptions of its own
            said = objects.said(error)
            if self.folder is not None and isinstance(error, OSError) and error.strerror:
                said = error.strerror
            where = (
                objects.CREDENTIALS if self.folder is None else "check the volume, its free space and its permissions"
            )
            raise DataError(f"cannot use {self.path(name)}: {said}", hint=where) from error

    def _read_apart(self, name: str) -> bytes:
        """In a process of its own: the threads of the client did not come along when this one was forked."""
        command = [sys.executable, "-m", __name__, self.url, name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode == _ABSENT:
            raise FileNotFoundError(f"{self.path(name)}: no such file")
        if done.returncode != 0:
            message, _, hint = done.stderr.decode(errors="replace").strip().partition("\n  fix: ")
            ended = f"cannot use {self.path(name)}: the process that reads it ended with {done.returncode}"
            raise DataError(message[-1000:] or ended, hint=hint)
        return done.stdout


_ABSENT = 3
"""Exit status of the process that reads for a forked one."""


class _FileSystem:
    """One of fsspec's."""

    def __init__(self, url: str, protocol: str) -> None:
        try:
            import fsspec  # type: ignore[import-untyped] # only where it is needed

            self._files = fsspec.filesystem(protocol)
        except ImportError as error:
            raise ConfigError(f"{url} needs the package {error.name}", hint="pip install it") from error
        except Exception as error:  # those without a default for the host, say, have no kind of their own
            raise ConfigError(f"{url}: {error}", hint="a path, or a URL such as s3://bucket/folder") from error
        self._url = url

    def read(self, name: str) -> bytes:
        return bytes(self._files.cat_file(f"{self._url}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._url}/{name}", data)

    def remove(self, name: str) -> None:
        self._files.rm_file(f"{self._url}/{name}")


class _ObjectStore:
    """One of obstore's."""

    def __init__(self, url: str, _: str) -> None:
        self._store: Any = objects.opened(url)

    def read(self, name: str) -> bytes:
        return bytes(self._store.get(name).bytes())

    def write(self, name: str, data: bytes) -> None:
        self._store.put(name, data)

    def remove(self, name: str) -> None:
        self._store.delete(name)


def _main() -> None:
    url, name = sys.argv[1:]
    status = 0
    try:
        sys.stdout.buffer.write(Source(url).read(name))
        sys.stdout.flush()
    except FileNotFoundError:
        status = _ABSENT
    except (ConfigError, DataError) as error:
        sys.stderr.write(str(error))
        sys.stderr.flush()
        status = 1
    os._exit(status)


if __name__ == "__main__":
    _main()
