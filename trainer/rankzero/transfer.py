"""Checkpoints on their way to an object store and back: work that a process of its own does for a rank.

In the rank itself a thread that is inside obstore when the interpreter ends would abort the process, and one that waits
for a dead network cannot be ended. This process can, at any moment: an object is whole or absent, and a checkpoint of
the store is one by its manifest, which comes last and goes first. No torch here, so that it starts within a moment.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankzero import contract, objects
from rankzero.errors import CheckpointError, RankzeroError
from rankzero.sums import Sums

PIECE = 8 * 2**20
"""Bytes that are read at a time, and of one part of an object, of which at most ``PARTS`` are on their way at once."""
PARTS = 4
MOST_PARTS = 9000
"""Of one object; S3 takes 10,000."""
NAME = re.compile(r"step-\d{10}")
"""Of a checkpoint. Everything else is somebody else's."""
ENDED = "it was given up"

Files = Mapping[str, Mapping[str, Any]]
"""As in a manifest: by name ``size`` and ``crc32``."""


class Transfers:
    """Runs one job at a time. :meth:`end`, from any thread, ends the present one, and there are no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_ended = False

    def run(self, job: str, url: str, **arguments: Any) -> tuple[Any, str]:
        """What the function ``job`` of this module answers, or why it could not."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", __name__]
        with self._lock:
            if self._is_ended:
                return None, ENDED
            try:
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            except OSError as error:
                return None, f"no process to do it: {error}"
            self._process = process
        try:
            with process:  # its standard input stays open as long as somebody waits for it
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps({"job": job, "url": url, **arguments}) + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.read())
            return answer["answer"], answer["problem"]
        except (OSError, ValueError):  # no answer, or half of one
            return None, ENDED if self._is_ended else f"the process that does it ended with {process.wait()}"

    def end(self) -> None:
        """Come to an end at once."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()


def look(url: str, *, make: bool = False) -> dict[str, list[str]]:
    """Names of the checkpoints in a run's folder: the ``whole`` ones, and ``parts`` of others."""
    store = objects.opened(url, seconds=objects.SECONDS, make=make)
    found: dict[str, list[str]] = {"whole": [], "parts": []}
    for name in sorted(Path(prefix).name for prefix in store.list_with_delimiter()["common_prefixes"]):
        if NAME.fullmatch(name):
            found["parts" if _manifest(store, name) is None else "whole"].append(name)
    return found


def begin(url: str, *, name: str, source: str, metrics: bool) -> dict[str, Any]:
    """Prepare the copy of a checkpoint: what is there, as :func:`look` tells, and whether it ``is_there`` itself.

    Another one of its name is none from now on. With ``metrics`` those of all others are told, by name.
    """
    found: dict[str, Any] = look(url, make=True)
    store = objects.opened(url, seconds=objects.SECONDS)
    there = _manifest(store, name)
    found["is_there"] = there == (Path(source) / contract.MANIFEST_FILE).read_bytes()
    if there is not None and not found["is_there"]:
        store.delete(f"{name}/{contract.MANIFEST_FILE}")
    found["metrics"] = {other: _metric(store, other) for other in found["whole"] if metrics and other != name}
    return found


def upload(url: str, *, name: str, source: str, files: Files) -> None:
    """Copy ``files`` of a checkpoint, comparing checksums on the way: what does not match becomes no object."""
    store = objects.opened(url, seconds=objects.SECONDS)
    for file, described in files.items():
        part = max(PIECE, -(-int(described["size"]) // MOST_PARTS))
        pieces = _pieces(Path(source, file), described)
        store.put(f"{name}/{file}", pieces, chunk_size=part, max_concurrency=PARTS)


def complete(url: str, *, name: str, step: int, source: str, remove: list[str]) -> str:
    """Add the manifest, say which is the latest, and remove others; the answer is why one of those is still there."""
    store = objects.opened(url, seconds=objects.SECONDS)
    store.put(f"{name}/{contract.MANIFEST_FILE}", Path(source, contract.MANIFEST_FILE).read_bytes())
    store.put(contract.LATEST_FILE, f"{json.dumps({'checkpoint': name, 'step': step}, indent=2)}\n".encode())
    try:
        for other in remove:
            _remove(store, other)
    except Exception as error:  # no reason to call the copy a failure
        return objects.said(error)
    return ""


def manifest(url: str, *, name: str) -> str:
    """The manifest of a checkpoint."""
    text = _manifest(objects.opened(url, seconds=objects.SECONDS), name)
    if text is None:
        raise CheckpointError(f"{url}/{name} has no {contract.MANIFEST_FILE}")
    return text.decode()


def fetch(url: str, *, name: str, target: str, files: Files) -> None:
    """Fetch ``files`` of a checkpoint into a folder; they are durable there, and what their manifest says."""
    store = objects.opened(url, seconds=objects.SECONDS)
    for file, described in files.items():
        path, size, sums = f"{name}/{file}", int(described["size"]), Sums()
        try:
            found = int(store.head(path)["size"])
        except FileNotFoundError:
            raise CheckpointError(f"{url}/{path} is missing") from None
        if found != size:
            raise CheckpointError(f"{url}/{path} has {found} bytes, not {size}")
        with Path(target, file).open("wb") as writing:
            for offset in range(0, size, PIECE):
                piece = memoryview(store.get_range(path, start=offset, end=min(offset + PIECE, size)))
                sums.add(piece)
                writing.write(piece)
            writing.flush()
            os.fsync(writing.fileno())
        if sums.description != described:
            raise CheckpointError(f"{url}/{path} does not match its checksum")


def _remove(store: Any, name: str) -> None:
    """The manifest first: what is left by an end half-way is no checkpoint."""
    manifest = f"{name}/{contract.MANIFEST_FILE}"
    paths = [entry["path"] for entries in store.list(name) for entry in entries]
    for batch in ([path for path in paths if path == manifest], [path for path in paths if path != manifest]):
        if batch:
            store.delete(batch)


def _manifest(store: Any, name: str) -> bytes | None:
    try:
        return bytes(store.get(f"{name}/{contract.MANIFEST_FILE}").bytes())
    except FileNotFoundError:
        return None


def _metric(store: Any, name: str) -> float | None:
    try:
        metric = json.loads(_manifest(store, name) or b"{}").get("metric")
    except (ValueError, AttributeError):  # a damaged one is the best of nothing
        return None
    return metric if isinstance(metric, int | float) else None


def _pieces(path: Path, described: Mapping[str, Any]) -> Iterator[bytes]:
    """The content of a file. Raises :class:`CheckpointError` at its end where that is not what it should be."""
    sums = Sums()
    with path.open("rb", buffering=0) as reading:
        while piece := reading.read(PIECE):
            sums.add(memoryview(piece))
            os.posix_fadvise(reading.fileno(), 0, reading.tell(), os.POSIX_FADV_DONTNEED)  # the data reader's stays
            yield piece
    if sums.description != described:
        raise CheckpointError(f"{path} does not match its checksum")


JOBS = {job.__name__: job for job in (look, begin, upload, complete, manifest, fetch)}


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _main() -> None:
    line = sys.stdin.readline()
    if not line.endswith("\n"):  # the rank is gone already
        os._exit(1)
    request = json.loads(line)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer, problem = None, ""
    try:
        answer = JOBS[request.pop("job")](**request)
    except RankzeroError as error:
        problem = error.message
    except OSError as error:  # obstore's are some of these, without a number
        problem = f"{error.strerror}: {error.filename}" if error.strerror else objects.said(error)
    except Exception as error:  # each object store has exceptions of its own
        problem = objects.said(error)
    sys.stdout.write(json.dumps({"answer": answer, "problem": problem}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main()
