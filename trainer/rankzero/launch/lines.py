"""Lines for a file or a pipe that may hang, be slow or full: that costs lines, never time.

What does not fit into the queue or cannot be written is counted, and a line at its place says how many are missing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rankzero.launch.background import BackgroundWriter


class Lines:
    """One descriptor that whole lines are written to. ``reason`` says why some are missing.

    ``open_descriptor`` is called in the writer's thread before the first line and may raise OSError; ``behind`` is the
    reason where the queue is full.
    """

    def __init__(self, writer: BackgroundWriter, open_descriptor: Callable[[], int], behind: str) -> None:
        self.reason = ""
        self._writer = writer
        self._open_descriptor = open_descriptor
        self._behind = behind
        self._handing_over = threading.Lock()
        self._dropped = 0
        """Lines that found the queue full, in all; ``_told`` of them are known to the thread."""
        self._told = 0
        self._failed = 0
        """Lines that could not be written, in all. This and what follows belongs to the writer's thread."""
        self._gap = 0
        self._descriptor = -1
        self._in_line = False

    @property
    def lost(self) -> int:
        """Lines that were not written."""
        return self._dropped + self._failed

    def write(self, lines: bytes) -> bool:
        """Append whole lines; False where they are lost already. Never blocks. Any thread."""
        with self._handing_over:
            if self._hand_over(lines):
                return True
            self._dropped += lines.count(b"\n")
            self.reason = self._behind
            return False

    def end(self) -> None:
        """Have the end marked where lines are missing there. Never blocks."""
        with self._handing_over:
            if self._dropped > self._told:
                self._hand_over(b"")

    def _hand_over(self, lines: bytes) -> bool:
        dropped = self._dropped - self._told
        taken = self._writer.offer(len(lines), lambda: self._append(lines, dropped))
        if taken:
            self._told += dropped
        return taken

    # --- In the writer's thread --------------------------------------------------------------------------

    def _append(self, lines: bytes, dropped: int) -> None:
        self._gap += dropped
        try:
            if self._descriptor < 0:
                self._descriptor = self._open_descriptor()
            if self._gap:
                self._write(b"\n" * self._in_line + b"-- %d lines are missing here --\n" % self._gap)
                self._gap = 0
        except OSError as error:
            self._fail(error, lines)
            return
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._descriptor, lines[written : written + 2**20])
        except OSError as error:
            self._in_line = not lines[:written].endswith(b"\n") if written else self._in_line
            self._fail(error, lines[written:])

    def _write(self, notice: bytes) -> None:
        if os.write(self._descriptor, notice) == len(notice):
            self._in_line = False

    def _fail(self, error: OSError, lines: bytes) -> None:
        self.reason = error.strerror or str(error)
        self._failed += lines.count(b"\n")
        self._gap += lines.count(b"\n")
