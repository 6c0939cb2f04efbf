"""Steps in the log of a pod, with the times that the container runtime gave the lines."""

from __future__ import annotations

import re
from datetime import datetime

STEP = re.compile(r"\bstep (\d+)/\d+")
RESUMED = re.compile(r"\bresumed from step \d+")


def first_step(log: str, *, since: float, resumed: bool) -> float | None:
    """When the first step after ``since`` was printed, both in seconds since the epoch; None where none was yet.

    With ``resumed`` only steps count of a script that has said, after ``since`` too, that it goes on from a
    checkpoint: ranks that have not noticed the failure yet, or save because of it, still print steps.
    """
    counts = not resumed
    for line in log.splitlines():
        stamp, _, text = line.partition(" ")
        try:
            at = datetime.fromisoformat(stamp).timestamp()
        except ValueError:  # the rest of a line that was cut
            continue
        if at < since:
            continue
        counts = counts or RESUMED.search(text) is not None
        if counts and STEP.search(text):
            return at
    return None


def last_step(log: str) -> int:
    """Number of the last step that was printed; 0 where none was."""
    numbers = STEP.findall(log)
    return int(numbers[-1]) if numbers else 0
