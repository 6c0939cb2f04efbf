"""What a pod's ranks would run: compared when a pod joins, so that members with different code never train together.

Folders of nodes that were not all brought up to date, a ConfigMap that was edited, a tag that was moved: the settings
are the same, and the ranks would hang or, worse, train.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path

from rankzero.config import LaunchConfig
from rankzero.launch import volume

MOST_FILES = 1000
"""Files of a folder that are compared."""
FRESH = 2.0
"""Seconds after a read for which its answer is given again: a whole group may join at once."""


def fingerprint(script: str) -> str:
    """12 digits of the SHA-256 over the Python files in the script's folder; empty without a script. Raises OSError."""
    if not script:
        return ""
    digest = hashlib.sha256()
    files = sorted(path for path in Path(script).parent.iterdir() if path.suffix == ".py" and path.is_file())
    for path in itertools.islice(dict.fromkeys([Path(script), *files]), MOST_FILES):
        digest.update(path.name.encode(errors="surrogateescape") + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


class Code:
    """The code as it is on disk now, since every attempt reads it anew."""

    def __init__(self, launch: LaunchConfig, say: Callable[[str], None]) -> None:
        self._script = launch.script
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
            return await volume.attempt(lambda: fingerprint(self._script), "", say, within=math.inf)
        finally:
            self._read_at = time.monotonic()

    def _not_compared(self, why: str) -> None:
        self._say(f"the folder of {self._script} {why}: its code is not compared with that of other pods")
