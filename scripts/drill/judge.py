"""Did the run do what the drill says it must? Judged from its records alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from scripts.drill.evidence import Evidence
from scripts.drill.plan import Drill, Fate
from scripts.drill.scene import Seen


@dataclass(frozen=True)
class Story:
    """What the runner saw. Times are seconds since the epoch; 0 where a drill has no such moment."""

    installed: float
    struck: float
    over: float
    released: bool
    other_results: tuple[dict[str, float], ...] = ()
    before: Mapping[int, Seen] = field(default_factory=dict)
    """Pods by node rank when the event came."""
    after: Mapping[int, Seen] = field(default_factory=dict)
    """And when the run was last seen at work."""


@dataclass(frozen=True)
class Verdict:
    """``seconds`` is the time that ``Drill.within`` limits; None where its end never came.

    ``since_struck`` counts from the beginning of what lasted, where ``seconds`` counts from its end.
    """

    seconds: float | None
    causes: tuple[str, ...]
    steps_repeated: int
    shortfalls: tuple[str, ...]
    since_struck: float | None = None
    pods: Mapping[int, str] = field(default_factory=dict)

    def misses(self, drill: Drill) -> bool:
        """Whether it was slower than what is aimed at."""
        return drill.target is not None and (self.seconds is None or self.seconds > drill.target)


def judge(drill: Drill, story: Story, found: Evidence, undisturbed: Evidence) -> Verdict:
    """Compare a run with what its drill says, and with the run that nothing disturbed."""
    seconds = _seconds(drill, story, found)
    repeated = _repeated(found)
    shortfalls = [
        *_of_time(drill, seconds),
        *_of_causes(drill, found.attempts),
        *_of_pods(drill, story, found.attempts),
        *_of_ending(drill, found.outcome),
        *_of_steps(drill, found, repeated),
        *_of_bits(drill, found, undisturbed),
    ]
    shortfalls += [
        f"the other run's result {result} differs from that of the undisturbed run"
        for result in story.other_results
        if result != undisturbed.result
    ]
    if not story.released:
        shortfalls.append("its pods were not released")
    lasted = story.over - story.struck if story.over and story.struck and drill.causes else 0.0
    return Verdict(
        seconds,
        tuple(map(_cause, found.attempts)),
        repeated,
        tuple(shortfalls),
        since_struck=round(seconds + lasted, 2) if seconds is not None and lasted else None,
        pods={rank: _fate(rank, story, found.attempts) for rank in sorted(story.before)},
    )


def _seconds(drill: Drill, story: Story, found: Evidence) -> float | None:
    """From the event to the next step, to the end of a run that must end, or the longest pause where none restarts."""
    event = story.over or story.struck or (_last_step_time(found, 1) if drill.causes else story.installed)
    if drill.ending.state != "succeeded":
        return round(found.outcome["ended"] - event, 2) if "ended" in found.outcome else None
    if drill.causes:  # the step has to be one of the attempt that follows
        firsts = [attempt["first_step_time"] for attempt in found.attempts[1:] if "first_step_time" in attempt]
        return next((round(first - event, 2) for first in firsts if first > event), None)
    times: list[float] = [line["time"] for line in found.metrics]
    if not times or times[-1] < event:
        return None
    if times[0] > event:
        return round(times[0] - event, 2)
    return round(max(after - before for before, after in pairwise(times) if after > story.struck), 2)


def _last_step_time(found: Evidence, attempt: int) -> float:
    return max((line["time"] for line in found.metrics if line["attempt"] == attempt), default=0.0)


def _of_time(drill: Drill, seconds: float | None) -> Iterator[str]:
    what = "the end" if drill.ending.state != "succeeded" else "the next step"
    if seconds is None:
        yield f"{what} never came"
    elif seconds > drill.within:
        yield f"{what} came after {seconds:.1f} s, {drill.within:g} s are allowed"
    elif seconds < drill.least:
        yield f"{what} came after {seconds:.1f} s already: what lasts {drill.least:g} s at least did not reach the run"


def _of_causes(drill: Drill, attempts: list[dict[str, Any]]) -> Iterator[str]:
    ended = attempts[:-1] if drill.ending.state == "succeeded" else attempts
    most = len(drill.causes)
    least = most - drill.optional_causes
    if not least <= len(ended) <= most:
        said = "; ".join(map(_cause, ended)) or "none"
        expected = f"{most}" if least == most else f"{least} to {most}"
        yield f"{len(ended)} attempts ended before the last success, {expected} expected: {said}"
    for number, (wanted, attempt) in enumerate(zip(drill.causes, ended, strict=False), 1):
        if not wanted.fits(attempt.get("cause")):
            yield f"the record of attempt {number} says {_cause(attempt)!r}, not {wanted}"


def _of_pods(drill: Drill, story: Story, attempts: list[dict[str, Any]]) -> Iterator[str]:
    for rank, wanted in drill.pods.items():
        if (fate := _fate(rank, story, attempts)) != wanted.value:
            yield f"pod {rank} was {fate}, not {wanted.value}"


def _fate(rank: int, story: Story, attempts: list[dict[str, Any]]) -> str:
    """One of :class:`Fate`, or in words what is none of them. By the API, and by the uids in the records."""
    if rank not in story.before or rank not in story.after:
        return "not seen"
    before, after = story.before[rank], story.after[rank]
    recorded = [node["uid"] for attempt in attempts for node in attempt["nodes"] if node["node_rank"] == rank]
    others = len({before.uid, *recorded, after.uid}) - 1
    if others:
        return Fate.REPLACED.value if others == 1 else f"replaced {others} times"
    fate = Fate.KEPT if after.restarts == before.restarts else Fate.RESTARTED
    return str(fate.value)


def _of_ending(drill: Drill, outcome: dict[str, Any]) -> Iterator[str]:
    wanted = drill.ending
    got = (outcome.get("state"), outcome.get("exit_code"))
    if got != (wanted.state, wanted.exit_code):
        yield f"the run ended as {got[0]} with status {got[1]}, not {wanted.state} with {wanted.exit_code}"
    elif not re.search(wanted.words, outcome["reason"]):
        yield f"the reason is {outcome['reason']!r}, without {wanted.words!r}"


def _repeated(found: Evidence) -> int:
    """Steps that were trained more than once."""
    attempts = [steps for attempt in found.attempts if (steps := found.steps(attempt["attempt"]))]
    return sum(max(0, before[-1] - after[0] + 1) for before, after in pairwise(attempts))


def _of_steps(drill: Drill, found: Evidence, repeated: int) -> Iterator[str]:
    if repeated > drill.repeats:
        yield f"{repeated} steps were trained again, at most {drill.repeats} are allowed"
    if repeated < drill.least_repeats:
        yield f"{repeated} steps were trained again, at least {drill.least_repeats} expected"
    for attempt in found.attempts if drill.all_metrics else []:
        steps = found.steps(attempt["attempt"])
        if not steps:
            continue
        first = attempt["resumed_from"] + 1
        if steps != list(range(first, first + len(steps))):
            yield f"attempt {attempt['attempt']} went on from step {first - 1} and made steps {steps}"
    if drill.all_metrics and drill.ending.state == "succeeded":
        missing = sorted(
            set(range(1, int(found.result.get("steps", 0)) + 1)) - {line["step"] for line in found.metrics}
        )
        if missing:
            yield f"steps {missing} were skipped"


def _of_bits(drill: Drill, found: Evidence, undisturbed: Evidence) -> Iterator[str]:
    """Each step's loss, and the final weights, must be those of the undisturbed run, to the last bit."""
    if wild := [line["step"] for line in found.metrics if line["loss"] is None or not math.isfinite(line["loss"])]:
        yield f"the loss of steps {wild} is not a finite number, so equal bits would say nothing"
    right = {line["step"]: line["loss"] for line in undisturbed.metrics}
    lines = found.metrics
    if drill.changed_rate is not None:
        yield from _of_the_changed_rate(drill, found, right)
        # The first step at the new rate still starts from the same weights; those after it do not.
        lines = [line for line in lines if line["attempt"] == 1]
    wrong = [line["step"] for line in lines if line["loss"] != right.get(line["step"])]
    if wrong:
        yield f"the loss of steps {wrong} differs from that of the undisturbed run"
    if drill.ending.state == "succeeded" and drill.changed_rate is None and found.result != undisturbed.result:
        yield f"the result {found.result} differs from that of the undisturbed run, {undisturbed.result}"


def _of_the_changed_rate(drill: Drill, found: Evidence, right: dict[int, float]) -> Iterator[str]:
    after = [line for line in found.metrics if line["attempt"] > 1]
    if {line["learning_rate"] for line in after} != {drill.changed_rate}:
        yield f"the learning rates after the upgrade are {sorted({line['learning_rate'] for line in after})}"
    elif after[0]["loss"] != right.get(after[0]["step"]):
        yield f"step {after[0]['step']}, the first after the upgrade, did not start from the weights before it"
    elif after[-1]["loss"] == right.get(after[-1]["step"]):
        yield "the new learning rate has changed nothing"


def _cause(attempt: dict[str, Any]) -> str:
    if "ended" not in attempt:
        return "still open"
    cause = attempt["cause"]
    return f"{cause['kind']}: {cause['reason']}" if cause else "succeeded"
