"""What a process prints, read from its pipe and given to its log line by line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rankzero.launch.logs import Log

LONGEST_LINE = 65536
PIPE_DRAIN_SECONDS = 1.0
"""How long to read on after a worker's end: a process that left its group may hold the pipe open."""


class Output:
    """Copies one stream to ``log``, from its beginning to its end."""

    def __init__(self, stream: asyncio.StreamReader, log: Log) -> None:
        self._log = log
        self._copying = asyncio.create_task(self._copy(stream))

    @property
    def last_lines(self) -> Sequence[str]:
        """The end of what was printed so far."""
        return self._log.last_lines

    async def finish(self) -> None:
        """Call it when the process has ended: returns when all is read, or after a while."""
        await asyncio.wait([self._copying], timeout=PIPE_DRAIN_SECONDS)
        self._copying.cancel()

    async def _copy(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stream.read(LONGEST_LINE):
            lines, end, rest = (rest + chunk).rpartition(b"\n")
            if end:
                self._log.write(lines)
            if len(rest) > LONGEST_LINE:  # a progress bar without line ends must not grow in memory
                self._log.write(rest)
                rest = b""
            await asyncio.sleep(0)  # what is buffered is read without a pause: others have their turn in between
        if rest:
            self._log.write(rest)
