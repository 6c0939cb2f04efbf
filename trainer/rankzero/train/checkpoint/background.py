"""One piece of work at a time beside the training loop."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs work in a thread that does not keep the process from ending: what is unfinished then was never there."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], T], afterwards: Callable[[T], None]) -> None:
        """Begin. ``afterwards`` gets the result of ``work``, which is known by then. Nothing may be running."""
        assert self._thread is None
        self._known.clear()
        self._result = self._error = None
        self._thread = threading.Thread(target=self._run, args=(work, afterwards), name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether it still works, on what comes afterwards included."""
        return self._thread is not None and self._thread.is_alive()

    def poll(self) -> T | None:
        """The result, once, when it is known; raises what the work raised."""
        if not self._known.is_set():
            return None
        result, self._result = self._result, None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return result

    def wait(self) -> T | None:
        """As :meth:`poll`, when it is known."""
        if self._thread is not None:
            self._known.wait()
        return self.poll()

    def join(self, timeout: float | None = None) -> None:
        """Wait until nothing runs any more, what comes afterwards included, or ``timeout`` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
            if not self._thread.is_alive():
                self._thread = None

    def _run(self, work: Callable[[], T], afterwards: Callable[[T], None]) -> None:
        try:
            self._result = work()
        except BaseException as error:
            self._error = error
            return
        finally:
            self._known.set()
        afterwards(self._result)


NICENESS = 10
"""Added for what can wait: a tenth of a busy core stays, so that nobody waits long for a lock it holds."""


def give_way() -> None:
    """From now on others' work comes first, where cores are short. The calling thread alone; there is no way back."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # some containers forbid it
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
