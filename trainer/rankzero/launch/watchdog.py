"""Has the group come to a stop? Judged on rank 0 from every rank's last sign of progress.

Ranks wait for each other in collectives, so one that hangs stops all of them, and one that is busy for long with a
checkpoint or an evaluation excuses the others. So an attempt has stalled when *every* rank is past its own limit.
Ranks whose process has ended are out of it: they have done their part, or their failure is on its way. Nothing is
judged before some rank has said that it will report its steps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankzero.config import StallConfig
from rankzero.heartbeat import STEPPING, Phase
from rankzero.launch.protocol import RankBeat

PHASES = {phase.label: phase for phase in Phase}
STUCK = {
    "T": "its process is stopped by a signal",
    "t": "its process is stopped by a debugger",
    "D": "its process waits for a device or a volume",
}
"""States of a process in which it cannot make progress, with what to say."""
ENDED = frozenset({"", "Z"})
WAITING = frozenset({Phase.SYNC, Phase.BACKWARD})
"""Phases in which a rank waits for others."""
TELLING = 1.0
"""Seconds by which a rank must have stopped before the others to be suspected for that alone."""
MOST_NAMED = 8
"""Ranks that a sentence names."""


@dataclass(frozen=True)
class Stall:
    """No rank makes progress. ``suspect`` is the rank that holds up the others, -1 where nobody stands out."""

    suspect: int
    reason: str


class Watchdog:
    """Hears of every rank; times are monotonic seconds of this process.

    ``world_size`` ranks are expected; ``delay`` is how old in seconds the last word of a rank that moves may be.
    """

    def __init__(self, limits: StallConfig, world_size: int, delay: float = 0.0) -> None:
        self.limits = limits
        self.world_size = world_size
        self.delay = delay
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
        if not self.limits.enabled:
            return None
        now = time.monotonic()
        silent = len(self._heard) < self.world_size
        still: dict[int, float] = {}
        watched = False
        for rank, (beat, heard) in self._heard.items():
            if beat.process in ENDED:
                continue
            still[rank] = beat.still + now - heard
            if still[rank] < self.delay + max(self.limit(beat), self.limits.startup if silent else 0):
                return None
            watched = watched or beat.watched
        return self._stall(still) if watched else None

    def limit(self, beat: RankBeat) -> float:
        """Seconds that this rank may stay without a sign of progress."""
        phase = PHASES[beat.phase]
        if phase in STEPPING:
            known = beat.step_seconds > 0
            return max(self.limits.least, self.limits.factor * beat.step_seconds) if known else self.limits.startup
        return {
            Phase.STARTUP: self.limits.startup,
            Phase.PREPARATION: self.limits.preparation,
            Phase.CHECKPOINT: self.limits.checkpoint,
            Phase.EVALUATION: self.limits.evaluation,
            Phase.ENDING: self.limits.evaluation,
        }[phase]

    def _stall(self, still: Mapping[int, float]) -> Stall:
        beats = [self._heard[rank][0] for rank in sorted(still)]
        said = f"no rank made progress for {min(still.values()):.0f} s"
        missing = [rank for rank in range(self.world_size) if rank not in self._heard or self._is_mute(rank, still)]
        if missing and not any(beat.step for beat in beats):
            return Stall(missing[0], f"{said}: {_ranks(missing)} not reported yet, and the others wait")
        suspect = _suspect([beat for beat in beats if beat.watched], still)
        if suspect is None:
            phases = Counter(f"{beat.phase} after step {beat.step}" for beat in beats)
            where = ", ".join(f"{count} in {phase}" for phase, count in phases.most_common(3))
            return Stall(-1, f"{said} ({where}); no rank stands out")
        why = STUCK.get(suspect.process, "")
        return Stall(
            suspect.rank,
            f"{said}: rank {suspect.rank} is in phase {suspect.phase} after step {suspect.step} for "
            f"{still[suspect.rank]:.0f} s, and the others wait" + (f": {why}" if why else ""),
        )

    def _is_mute(self, rank: int, still: Mapping[int, float]) -> bool:
        """Whether a living rank has not said that it will report steps."""
        return rank in still and not self._heard[rank][0].watched


def odd_one_out(where: Mapping[str, str]) -> int:
    """The one rank that is at another line than all others, which are at the same; -1 where there is none."""
    lines = Counter(where.values())
    odd = [rank for rank, line in where.items() if lines[line] == 1]
    return int(odd[0]) if len(odd) == 1 and len(lines) == 2 and len(where) > 2 else -1


def _suspect(beats: Sequence[RankBeat], still: Mapping[int, float]) -> RankBeat | None:
    """The rank that cannot move, or is behind, or does not wait for others, or stopped first; None for a tie."""

    def order(beat: RankBeat) -> tuple[bool, int, bool]:
        return beat.process not in STUCK, beat.step, PHASES[beat.phase] in WAITING

    first, *others = sorted(beats, key=lambda beat: (*order(beat), -still[beat.rank]))
    if others and order(others[0]) == order(first) and still[first.rank] - still[others[0].rank] < TELLING:
        return None
    return first


def _ranks(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:MOST_NAMED])) + (", ..." if len(ranks) > MOST_NAMED else "")
    return f"rank {named} has" if len(ranks) == 1 else f"ranks {named} have"
