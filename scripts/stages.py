"""Named stages with their times, for a person who waits: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

STILL_WORKING_EVERY = 30.0
"""Seconds between two signs of life where there is no terminal."""


class Stages:
    """Runs stages one after another and remembers how long each took (``seconds``)."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.seconds: dict[str, float] = {}
        self._detail = ""

    def detail(self, text: str) -> None:
        """Say what the current stage is at; shown beside its clock."""
        self._detail = text

    def say(self, text: str) -> None:
        """A line that stays. It may quote others, so nothing in it is markup."""
        self.console.print(f"  {text}", markup=False)

    @contextmanager
    def __call__(self, name: str, *, quiet: bool = False) -> Iterator[None]:
        """Time the body as stage ``name``; an exception is reported as failed and passed on.

        ``quiet``: the body shows its own progress, so there is no clock beside it.
        """
        began = time.monotonic()
        self._detail = ""
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(name, began, done), daemon=True)
        if not quiet:
            ticker.start()
        failed = True
        try:
            yield
            failed = False
        finally:
            done.set()
            if not quiet:
                ticker.join()
            self.seconds[name] = round(time.monotonic() - began, 1)
            mark = ("failed", "red") if failed else ("done", "green")
            self.console.print(Text.assemble(mark, "  ", name, "  ", (f"{self.seconds[name]:.1f} s", "dim")))

    def _tick(self, name: str, began: float, done: threading.Event) -> None:
        if self.console.is_terminal:
            with self.console.status(Text(name)) as status:
                while not done.wait(0.25):
                    beside = f"{time.monotonic() - began:.0f} s  {self._detail}"
                    status.update(Text.assemble(name, "  ", (beside, "dim")))
            return
        while not done.wait(STILL_WORKING_EVERY):
            self.console.print(f"...  {name}  {time.monotonic() - began:.0f} s  {self._detail}", markup=False)
