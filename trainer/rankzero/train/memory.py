"""How much memory a rank holds, and whether that grows for ever. All figures are bytes."""

from __future__ import annotations

import os
import resource
from collections import deque
from itertools import pairwise
from pathlib import Path

import torch

STATM = Path("/proc/self/statm")
PAGE = os.sysconf("SC_PAGE_SIZE")
MARKS = 4
"""As often in a row memory must have risen before it counts as a leak; the first time is warming up."""
LEAST_RISE = 0.02
"""Share by which it must have grown over them."""
LEAST_BYTES = 64 * 2**20
"""And bytes: allocators keep some."""


def usage() -> dict[str, int]:
    """What this process holds, and of its GPU where it uses one: ``allocated`` by tensors, ``reserved`` by PyTorch.

    A peak is that since the process began.
    """
    found = {
        "host": _resident(),
        "host_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["allocated"] = torch.cuda.memory_allocated()
        found["reserved"] = torch.cuda.memory_reserved()
        found["peak"] = torch.cuda.max_memory_allocated()
    return found


def _resident() -> int:
    with STATM.open("rb", buffering=0) as file:
        return int(file.read().split()[1]) * PAGE


class Growth:
    """Looks at one figure at the same point of each epoch and warns, once, where it rises again and again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._marks: deque[int] = deque(maxlen=MARKS + 1)
        self._first = True
        self._warned = False

    def mark(self, now: int) -> str:
        """Note what is held now; a sentence where that is the sign of a leak, else an empty text."""
        if self._first:
            self._first = False
            return ""
        self._marks.append(now)
        marks = list(self._marks)
        if self._warned or len(marks) <= MARKS or any(later <= held for held, later in pairwise(marks)):
            return ""
        rise = marks[-1] - marks[0]
        if rise < max(LEAST_BYTES, LEAST_RISE * marks[0]):
            return ""
        self._warned = True
        return (
            f"{self._what} has grown {MARKS} times in a row, from {marks[0] / 2**20:.0f} to {marks[-1] / 2**20:.0f} "
            f"MiB, {rise / MARKS / 2**20:.0f} MiB each time: is something kept with its graph (a loss without "
            ".item()), or a list or cache never emptied?"
        )
