"""One at a time: a lock that every other process of ours on this machine respects."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CLUSTER = Path("/run/rankzero-lab.lock")
"""Nodes, images and network have fixed names, so there is one cluster a machine, whichever cache folder is used."""


@contextmanager
def held(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock ``path`` during the body; where another process has it, call ``waiting`` once and wait.

    The kernel frees it with the process that holds it, however that ends. Not to be nested.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
