"""Which rank do the others wait for?

Ranks that train together all have the same step time. They differ in their own part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from rankzero.launch.protocol import RankBeat

WORTH_TELLING = 0.1
"""Share of everybody's step that goes into waiting for the slowest rank."""
TELL_AFTER = 30.0
"""Seconds for which the same rank must have been the slowest."""


@dataclass(frozen=True)
class Pace:
    """The rank with the longest part of its own.

    ``own`` is its seconds, ``usual`` the median of all ranks (the lower one of two), ``step`` the time of a whole step.
    """

    rank: int
    own: float
    usual: float
    step: float

    @property
    def lost(self) -> float:
        """Share of a step that a usual rank waits for this one, 0 to 1."""
        return min(1.0, (self.own - self.usual) / self.step) if self.step else 0.0

    def record(self) -> dict[str, Any]:
        """As the status page shows it."""
        return {**dataclasses.asdict(self), "lost": round(self.lost, 4), "said": str(self)}

    def __str__(self) -> str:
        return (
            f"rank {self.rank} needs {self.own:.3f} s for its own part of a step, the median of all is "
            f"{self.usual:.3f} s: the others wait for it {self.lost:.0%} of the time"
        )


def pace(beats: Iterable[RankBeat]) -> Pace | None:
    """The slowest of these ranks; None where fewer than two have told how long their steps take."""
    known = [beat for beat in beats if beat.step_seconds > 0]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda beat: beat.own_seconds)
    return Pace(slowest.rank, slowest.own_seconds, median_low(beat.own_seconds for beat in known), slowest.step_seconds)


class Straggler:
    """Says once in an attempt that a rank holds up the others. Times are monotonic seconds of the caller."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rank, self._since, self._said = -1, 0.0, False

    def forget(self) -> None:
        """A new attempt begins."""
        self._rank, self._said = -1, False

    def judge(self, beats: Iterable[RankBeat], now: float) -> None:
        """Look at what the ranks last said."""
        found = None if self._said else pace(beats)
        if found is None or found.lost < WORTH_TELLING:
            self._rank = -1
        elif found.rank != self._rank:
            self._rank, self._since = found.rank, now
        elif now - self._since >= TELL_AFTER:
            self._said = True
            self._say(str(found))
