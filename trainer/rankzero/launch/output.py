"""What a process prints: passed on line by line with a mark in front, and its end kept for the failure record."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque

LAST_LINES, LAST_LINE_LENGTH = 20, 300
"""Lines of a worker's output that its failure record keeps, and characters of each (a message has a size limit)."""
LONGEST_LINE = 65536
PIPE_DRAIN_SECONDS = 1.0
"""How long to read on after a worker's end: a process that left its group may hold the pipe open."""


class Output:
    """Copies one stream from its beginning to its end; ``mark`` says whose lines these are."""

    def __init__(self, stream: asyncio.StreamReader, mark: str) -> None:
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._mark = f"[{mark}] ".encode()
        self._copying = asyncio.create_task(self._copy(stream))

    async def finish(self) -> None:
        """Call it when the process has ended: returns when all is read, or after a while."""
        await asyncio.wait([self._copying], timeout=PIPE_DRAIN_SECONDS)
        self._copying.cancel()

    async def _copy(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stream.read(LONGEST_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LONGEST_LINE:  # a progress bar without line ends must not grow in memory
                lines, rest = [*lines, rest], b""
            self._emit(lines)
        if rest:
            self._emit([rest])

    def _emit(self, lines: list[bytes]) -> None:
        self.last_lines.extend(line.decode(errors="replace")[:LAST_LINE_LENGTH] for line in lines[-LAST_LINES:])
        with contextlib.suppress(OSError):  # a log that cannot be written must not stop the training
            sys.stdout.buffer.write(b"".join(self._mark + line + b"\n" for line in lines))
            sys.stdout.buffer.flush()
