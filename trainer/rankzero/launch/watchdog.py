"""Has the group come to a stop? Judged on rank 0 from every rank's last sign of progress.

Ranks wait for each other in collectives, so one that hangs stops all of them, and one that is busy for long with a
checkpoint or an evaluation excuses the others. So an attempt has stalled when *every* rank is past its own limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rankzero.config import StallConfig
from rankzero.heartbeat import STEPPING, Phase
from rankzero.launch.protocol import RankBeat

STOPPED_STATES = {
    "T": "its process is stopped by a signal",
    "t": "its process is stopped by a debugger",
    "D": "its process waits for a device or a volume",
    "Z": "its process has ended",
    "": "its process is gone",
}
"""States of a process in which it cannot make progress, with what to say."""
WAITING = frozenset({Phase.SYNC, Phase.BACKWARD})
"""Phases in which a rank waits for others."""


@dataclass(frozen=True)
class Stall:
    """No rank makes progress. ``suspect`` is the rank that the others seem to wait for."""

    suspect: RankBeat
    reason: str


class Watchdog:
    """Hears of every rank; times are monotonic seconds of this process."""

    def __init__(self, limits: StallConfig) -> None:
        self.limits = limits
        self._heard: dict[int, tuple[RankBeat, float]] = {}

    def forget(self) -> None:
        """A new attempt begins."""
        self._heard.clear()

    def hear(self, beats: Sequence[RankBeat]) -> None:
        """Take in what a member reports."""
        now = time.monotonic()
        self._heard |= {beat.rank: (beat, now) for beat in beats}

    @property
    def beats(self) -> list[RankBeat]:
        """The last of every rank that beats, by rank."""
        heard = dict(self._heard)  # the status page asks from a thread of its own
        return [beat for _, (beat, _) in sorted(heard.items())]

    def verdict(self) -> Stall | None:
        """The stall, where there is one."""
        now = time.monotonic()
        still = {rank: beat.still + now - heard for rank, (beat, heard) in self._heard.items()}
        if not self.limits.enabled or not still:
            return None
        if any(still[beat.rank] < self.limit(beat) for beat in self.beats):
            return None
        suspect = min(self.beats, key=lambda beat: _order(beat, still[beat.rank]))
        why = STOPPED_STATES.get(suspect.process, "")
        return Stall(
            suspect,
            f"no rank made progress for {min(still.values()):.0f} s; the others wait for rank {suspect.rank}, which is "
            f"in phase {suspect.phase} after step {suspect.step} for {still[suspect.rank]:.0f} s"
            + (f": {why}" if why else ""),
        )

    def limit(self, beat: RankBeat) -> float:
        """Seconds that this rank may stay without a sign of progress."""
        phase = Phase[beat.phase.upper()]
        if phase in STEPPING:
            return max(self.limits.least, self.limits.factor * beat.step_seconds) if beat.step else self.limits.startup
        return {
            Phase.STARTUP: self.limits.startup,
            Phase.PREPARATION: self.limits.preparation,
            Phase.CHECKPOINT: self.limits.checkpoint,
            Phase.EVALUATION: self.limits.evaluation,
            Phase.ENDING: self.limits.least,
        }[phase]


def _order(beat: RankBeat, still: float) -> tuple[bool, int, bool, float]:
    """The suspect comes first: it cannot move, or is behind, or does not wait for others, or stopped first."""
    waits = Phase[beat.phase.upper()] in WAITING
    return beat.process not in STOPPED_STATES, beat.step, waits, -still
