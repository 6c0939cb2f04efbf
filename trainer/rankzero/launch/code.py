"""What a pod's ranks would run: compared when a pod joins, so that members with different code never train together.

Folders of nodes that were not all brought up to date, a ConfigMap that was edited, a tag that was moved: the settings
are the same, and the ranks would hang or, worse, train.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from rankzero.config import LaunchConfig
from rankzero.launch import volume

MOST_FILES = 1000
"""Files of a folder that are compared."""
READ_WITHIN = 5.0
"""Seconds; a file server that is away keeps nobody from joining."""
FRESH = 2.0
"""Seconds for which an answer is given again: a whole group may join at once."""


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
        self._since = 0.0

    async def fingerprint(self) -> str:
        """See :func:`fingerprint`; empty, and said, where the folder does not answer."""
        now = time.monotonic()
        if self._reading is None or now - self._since > FRESH:
            self._since = now
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> str:
        def say(_: str) -> None:
            self._say(f"the folder of {self._script} cannot be read: its code is not compared with that of other pods")

        return await volume.attempt(lambda: fingerprint(self._script), "", say, within=READ_WITHIN)
