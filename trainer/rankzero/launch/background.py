"""Writes that may hang, handed over to a thread so that the event loop never waits for them."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import deque
from collections.abc import Callable

MOST_QUEUED = 8 * 2**20
"""Bytes that wait to be written; the launcher's own memory is small."""

ENTRY = 512
"""Bytes that a queued write takes beside what it holds."""


class BackgroundWriter:
    """One daemon thread that runs writes in order: the interpreter does not wait for one that hangs."""

    def __init__(self, name: str, most: int = MOST_QUEUED) -> None:
        self._name = name
        self._most = most
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._queued = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._late: asyncio.Future[None] | None = None
        """Of a flush that was given up; while it is not done, the writes still hang."""

    def offer(self, size: int, write: Callable[[], None]) -> bool:
        """Queue ``write``, which holds ``size`` bytes; False where the queue is full. Never blocks. Any thread.

        With a ``size`` of 0 it is always taken.
        """
        with self._changed:
            if size and self._queued + (size := size + ENTRY) > self._most:
                return False
            self._queued += size
            self._queue.append((size, write))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return True

    async def flush(self, within: float) -> bool:
        """Wait until what was queued is written; False after ``within`` seconds, at once where it hung before."""
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
        done, _ = await asyncio.wait({written}, timeout=within)
        self._late = None if done else written
        return bool(done)

    def finish(self, within: float) -> bool:
        """:meth:`flush` where no event loop runs."""
        if self._thread is None:
            return True
        written = threading.Event()
        self.offer(0, written.set)
        return written.wait(within)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                size, write = self._queue.popleft()
            try:
                write()
            except Exception:  # a bug, which must not end all writes after it
                traceback.print_exc()
            with self._changed:
                self._queued -= size
