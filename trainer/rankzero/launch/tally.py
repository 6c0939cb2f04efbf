"""Log lines that anybody on the network can cause: the first is said at once, those after it are counted."""

from __future__ import annotations

import time
from collections.abc import Callable

from rankzero.launch.one_line import one_line

EVERY = 30.0
"""Seconds between two lines of one kind."""
LONGEST = 200
"""Characters of a line that a stranger can fill."""


class Tally:
    """Bounded form of many lines of one kind, which ``kind`` names in the plural."""

    def __init__(self, kind: str, say: Callable[[str], None]) -> None:
        self._kind = kind
        self._say = say
        self._next = time.monotonic()
        self._count = 0
        self._last = ""

    def note(self, text: str) -> None:
        """Say ``text`` now, or count it where something of its kind was said a moment ago."""
        text = one_line(text, LONGEST)
        if self._count or time.monotonic() < self._next:
            self._count += 1
            self._last = text
        else:
            self._next = time.monotonic() + EVERY
            self._say(text)

    def tell(self) -> None:
        """Say what was counted, where it is time to; call it every few seconds."""
        if self._count and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY
            self._say(f"{self._count} more {self._kind}; the last: {self._last}")
            self._count = 0
