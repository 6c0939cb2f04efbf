"""File operations that may hang: a file server that is away must stop neither the group nor the process's exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from rankzero.launch.background import BackgroundWriter

T = TypeVar("T")

WITHIN = 30.0
"""Seconds for one read or write of a record; a volume that takes longer is done without."""


async def attempt(
    action: Callable[[], T], otherwise: T, say: Callable[[str], None], *, within: float | None = None
) -> T:
    """Run ``action`` in a thread of its own; ``otherwise``, and a sentence, where it fails or takes too long.

    ``within`` is in seconds, :data:`WITHIN` unless given. What takes longer may still be done later.
    The thread is a daemon, unlike those of asyncio's executor: the interpreter does not wait for it.
    """
    within = WITHIN if within is None else within
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            value = action()
        except BaseException as error:
            answer(lambda reason=error: done.set_exception(reason))  # type: ignore[misc]
        else:
            answer(lambda: done.set_result(value))

    def answer(settle: Callable[[], None]) -> None:
        def settle_if_awaited() -> None:
            if not done.done():
                settle()

        if not loop.is_closed():
            loop.call_soon_threadsafe(settle_if_awaited)

    threading.Thread(target=work, name="volume", daemon=True).start()
    try:
        async with asyncio.timeout(within):
            return await done
    except TimeoutError:
        say(_no_answer(within))
    except OSError as error:
        say(_failure(error))
    return otherwise


class Saving:
    """Keeps something on the volume up to date: ``save`` brings the newest state there, and may raise OSError.

    It runs in one thread, so an older state never follows a newer one; while it hangs, any number of changes are one
    more run.
    """

    def __init__(self, save: Callable[[], None], say: Callable[[str], None]) -> None:
        self._save = save
        self._say = say
        self._asked = threading.Event()
        """Set while a run is waiting that has not begun."""
        self._writer = BackgroundWriter("volume")

    def ask(self) -> None:
        """Have the present state saved. Never blocks. Called on the event loop."""
        if not self._asked.is_set():
            self._asked.set()
            self._writer.offer(0, self._run)

    async def done(self, within: float | None = None) -> None:
        """Have the present state saved and wait for it, :data:`WITHIN` unless ``within``; what fails is said."""
        within = WITHIN if within is None else within
        self.ask()
        if not await self._writer.flush(within):
            self._say(_no_answer(within))

    def _run(self) -> None:
        self._asked.clear()  # first: what changes from now on is asked for anew
        try:
            self._save()
        except OSError as error:
            self._say(_failure(error))


def _no_answer(within: float) -> str:
    return f"the checkpoint volume did not answer within {within:g} s; going on without"


def _failure(error: OSError) -> str:
    return f"the checkpoint volume: {error.strerror or error}; going on without"
