"""The pod's log: the launcher's standard output.

A pipe that nobody drains (a container runtime that hangs, a node's disk that is full) blocks whoever writes to it. So a
thread does, and neither the group nor the training notices.
"""

from __future__ import annotations

from rankzero.launch.background import BackgroundWriter
from rankzero.launch.lines import Lines

STDOUT = 1
"""Its descriptor."""
MOST_QUEUED = 4 * 2**20
"""Bytes that wait to be taken."""
FINISH_WITHIN = 1.0
"""Seconds that the end of the process waits for that."""

_writer = BackgroundWriter("stdout", MOST_QUEUED)
# Not through sys.stdout, whose lock a thread that hangs would hold: the interpreter could not end.
_lines = Lines(_writer, lambda: STDOUT, "the pod's log is not taken")


def write(lines: bytes) -> None:
    """Print whole lines, in the order of the calls. Never blocks; what cannot be printed is counted there."""
    _lines.write(lines)


def finish() -> None:
    """Before the process ends: have the lines printed, in bounded time."""
    _lines.end()
    _writer.finish(FINISH_WITHIN)
