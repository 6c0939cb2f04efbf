"""File operations that may hang: a file server that is away must stop neither the group nor the process's exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

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
        say(f"the checkpoint volume did not answer within {within:g} s; going on without")
    except OSError as error:
        say(f"the checkpoint volume: {error.strerror or error}; going on without")
    return otherwise
