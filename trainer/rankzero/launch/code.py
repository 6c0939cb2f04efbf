"""What a pod's ranks would run: compared when a pod joins, so that members with different code never train together.

Folders of nodes that were not all brought up to date, a ConfigMap that was edited, a tag that was moved: the settings
are the same, and the ranks would hang or, worse, train.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rankzero.config import LaunchConfig
from rankzero.launch import volume

MOST_FILES = 1000
"""Python files that are compared."""
MOST_ENTRIES = 2000
"""A folder below the first one that has as many is taken for data, and not looked into."""
DETACHED = re.compile("[0-9a-f]{40,64}")
FRESH = 2.0
"""Seconds after a read for which its answer is given again: a whole group may join at once."""


def root(launch: LaunchConfig) -> Path | None:
    """The folder whose code is compared; None where nobody can say which it is.

    That of the script. A program has the working directory, where the chart mounts `code`; without that it is that of
    the image, where temporary files lie.
    """
    if launch.script:
        return Path(launch.script).parent
    here = Path.cwd()
    return None if str(here) in {tempfile.gettempdir(), os.environ.get("HOME")} else here


def fingerprint(launch: LaunchConfig) -> str:
    """12 digits of the SHA-256 over script, Python files and git's commit; empty without a folder. Raises OSError.

    Of folders below the first one those are looked into that hold Python files: packages, and neither data nor logs.
    Hidden ones are not: a mounted ConfigMap has one whose name is another in each pod.
    """
    folder = root(launch)
    if folder is None:
        return ""
    script = [Path(launch.script)] if launch.script else []
    digest = hashlib.sha256(_commit(folder).encode())
    for path in itertools.islice(dict.fromkeys([*script, *_python_files(folder)]), MOST_FILES):
        name = str(path.relative_to(folder))
        digest.update(name.encode(errors="surrogateescape") + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _python_files(folder: Path, most: int | None = None) -> Iterator[Path]:
    """In an order that depends on names only, those nearer to the top first; none of a folder with ``most`` entries."""
    files, below = [], []
    with os.scandir(folder) as entries:  # of a million names only what is wanted is kept
        for count, entry in enumerate(entries, 1):
            if count == most:
                return
            if entry.name.endswith(".py") and entry.is_file():
                files.append(Path(entry.path))
            elif not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                below.append(Path(entry.path))
    yield from sorted(files)
    if files and len(below) < MOST_ENTRIES:
        for path in sorted(below):
            yield from _python_files(path, MOST_ENTRIES)


def _commit(folder: Path) -> str:
    """What git has checked out there, where that is a commit and no branch, as `rankzero fetch-code` leaves it."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            head = (place / ".git" / "HEAD").read_text(encoding="ascii", errors="replace").strip()
            return head if DETACHED.fullmatch(head) else ""
    return ""


class Code:
    """The code as it is on disk now, since every attempt reads it anew."""

    def __init__(self, launch: LaunchConfig, say: Callable[[str], None]) -> None:
        self._launch = launch
        self.folder = root(launch)
        self._say = say
        self._reading: asyncio.Task[str] | None = None
        self._read_at = 0.0
        self._is_slow = False

    def begin(self) -> asyncio.Task[str]:
        """Read, unless that is going on or has just been done: of a folder that hangs one read hangs."""
        reading = self._reading
        if reading is None or (reading.done() and time.monotonic() - self._read_at > FRESH):
            reading = self._reading = asyncio.create_task(self._read())
        return reading

    async def fingerprint(self, within: float) -> str:
        """See :func:`fingerprint`; empty, and said, where the folder has not answered after ``within`` seconds."""
        reading = self.begin()
        done, _ = await asyncio.wait({reading}, timeout=within)
        if done:
            return reading.result()
        if not self._is_slow:
            self._is_slow = True
            self._not_compared(f"has not been read within {within:g} s")
        return ""

    async def _read(self) -> str:
        def say(_: str) -> None:
            self._not_compared("cannot be read")

        try:
            return await volume.attempt(lambda: fingerprint(self._launch), "", say, within=math.inf)
        finally:
            self._read_at = time.monotonic()

    def _not_compared(self, why: str) -> None:
        self._say(f"{self.folder} {why}: its code is not compared with that of other pods")
