"""Waiting for a condition, with a limit: the only place in the tests that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 90.0
"""Seconds for what takes a moment: this machine may be slow, and busy with other tests."""


def until(condition: Callable[[], T], *, what: str, timeout: float = PATIENCE) -> T:
    """Return the first true value of ``condition``; fail after ``timeout`` seconds naming ``what`` was awaited."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout:g} s")
        time.sleep(0.02)
    return value
