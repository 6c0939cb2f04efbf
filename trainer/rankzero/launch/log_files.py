"""Files on the checkpoint volume that the event loop only hands lines to: a thread writes them.

A volume that hangs, is slow or full costs lines, never time: what does not fit into the queue or into the file
is counted, and the file says where lines are missing.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

MOST_QUEUED = 8 * 2**20
"""Bytes that wait for the volume; the launcher's own memory is small."""
FLUSH_WITHIN = 3.0
"""Seconds that the end of an attempt waits for what is queued."""


class BackgroundWriter:
    """One daemon thread that runs writes in order: the interpreter does not wait for one that hangs."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._queued = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._late: asyncio.Future[None] | None = None
        """Of a flush that was given up; while it is not done, the volume still hangs."""

    def offer(self, size: int, write: Callable[[], None]) -> bool:
        """Queue ``write``, which holds ``size`` bytes; False where the queue is full. Never blocks."""
        with self._changed:
            if size and self._queued + size > MOST_QUEUED:
                return False
            self._queued += size
            self._queue.append((size, write))
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
            self._thread.start()
        return True

    async def flush(self) -> bool:
        """Wait until what was queued is written; False after :data:`FLUSH_WITHIN`, at once where it hung before."""
        if self._late is not None and not self._late.done():
            return False
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not written.done():
                written.set_result(None)

        def answer() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle)

        self.offer(0, answer)
        done, _ = await asyncio.wait({written}, timeout=FLUSH_WITHIN)
        self._late = None if done else written
        return bool(done)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                size, write = self._queue.popleft()
            write()
            with self._changed:
                self._queued -= size


class LogFile:
    """One file that lines are appended to, up to ``limit`` bytes. ``reason`` says why lines are missing."""

    def __init__(self, path: Path, limit: int, writer: BackgroundWriter) -> None:
        self.path = path
        self.reason = ""
        self._limit = limit
        self._writer = writer
        self._taken = 0
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
        """Lines that are not in the file, those beyond the limit aside."""
        return self._dropped + self._failed

    def write(self, lines: bytes) -> None:
        """Append whole lines. Never blocks."""
        if self._taken >= self._limit:
            return
        if len(lines) > (room := self._limit - self._taken):
            kept = lines[: lines.rfind(b"\n", 0, room) + 1]
            lines = kept + b"-- cut here: launch.logFileLimit is %d MiB --\n" % (self._limit // 2**20)
            self._taken = self._limit
        if self._hand_over(lines):
            self._taken += len(lines)
        else:
            self._dropped += lines.count(b"\n")
            self.reason = "the checkpoint volume does not keep up"

    def close(self) -> None:
        """Nothing more is written. Never blocks; :meth:`BackgroundWriter.flush` waits for it."""
        if self._dropped > self._told:
            self._hand_over(b"")
        self._writer.offer(0, self._close)

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
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
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

    def _close(self) -> None:
        if self._descriptor < 0:
            return
        try:
            os.close(self._descriptor)  # where a file server reports what it could not store
        except OSError as error:
            self.reason = error.strerror or str(error)
        self._descriptor = -1
