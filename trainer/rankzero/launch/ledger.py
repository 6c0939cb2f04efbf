"""Where the time of a run went, summed over its attempts, from their records alone."""

from __future__ import annotations

from typing import Any

from rankzero.heartbeat import STEPPING, Phase
from rankzero.launch.causes import STALLED

TRAINING = "training"
DATA_WAIT = "data wait"
CHECKPOINT = "checkpoint"
EVALUATION = "evaluation"
STARTUP = "startup"
LOST_WORK = "lost work"
WAITING = "waiting for pods"
STALL = "stalled"
STOPPING = "stopping"
BUCKETS = (TRAINING, DATA_WAIT, CHECKPOINT, EVALUATION, STARTUP, LOST_WORK, WAITING, STALL, STOPPING)
"""They add up to the time from the run's beginning to its end, or to now."""


def ledger(attempts: list[dict[str, Any]], *, began: float, now: float) -> dict[str, float]:
    """Seconds by bucket, as rank 0 lived them. ``began`` and ``now`` are seconds since the epoch.

    Work is lost where the next attempt resumed from before the last step: those steps are counted at the attempt's
    mean step time. What an attempt spent after its last sign of progress is stopping, or the stall that ended it.
    """
    accounts = _accounts(attempts, began, now)
    return {bucket: round(sum(account.get(bucket, 0.0) for account in accounts), 3) for bucket in BUCKETS}


def lost_by_cause(attempts: list[dict[str, Any]], *, began: float, now: float) -> dict[str, float]:
    """Seconds that failures have cost, by kind of cause: work lost, stalled and stopping, then waiting and starting."""
    accounts = _accounts(attempts, began, now)
    lost: dict[str, float] = {}
    for attempt, own, after in zip(attempts, accounts, accounts[1:], strict=False):
        if kind := (attempt.get("cause") or {}).get("kind"):
            cost = sum(own.get(bucket, 0.0) for bucket in (LOST_WORK, STALL, STOPPING))
            cost += sum(after.get(bucket, 0.0) for bucket in (WAITING, STARTUP))
            lost[kind] = round(lost.get(kind, 0.0) + cost, 3)
    return lost


def _accounts(attempts: list[dict[str, Any]], began: float, now: float) -> list[dict[str, float]]:
    """Seconds by bucket of each attempt with the wait before it; one more for the wait after the last."""
    accounts: list[dict[str, float]] = []
    end = began
    for attempt, later in zip(attempts, _that_went_on(attempts), strict=True):
        length = _length(attempt, now)
        accounts.append({**_of_attempt(attempt, length, later), WAITING: max(0.0, attempt["started"] - end)})
        end = attempt["started"] + length
    over = not attempts or "ended" in attempts[-1]
    return [*accounts, {WAITING: max(0.0, now - end) if over else 0.0}]


def _that_went_on(attempts: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """For each attempt the first one after it that knew from where it resumed."""
    later: list[dict[str, Any] | None] = []
    following = None
    for attempt in reversed(attempts):
        later.append(following)
        following = attempt if "resumed_from" in attempt else following
    return later[::-1]


def goodput(spent: dict[str, float]) -> float:
    """Share of the whole time that went into steps that were kept, 0 to 1."""
    whole = sum(spent.values())
    return spent.get(TRAINING, 0.0) / whole if whole else 0.0


def sentence(spent: dict[str, float]) -> str:
    """For the run's final line."""
    parts = [f"{bucket} {seconds:.0f} s" for bucket, seconds in spent.items() if seconds >= 0.5]
    return f"goodput {goodput(spent):.0%}" + (f" ({', '.join(parts)})" if parts else "")


def _length(attempt: dict[str, Any], now: float) -> float:
    """Seconds that an attempt took. ``elapsed`` comes from a clock that is never set."""
    if "elapsed" in attempt:
        return float(attempt["elapsed"])
    return max(0.0, float(attempt.get("ended", now)) - float(attempt["started"]))


def _of_attempt(attempt: dict[str, Any], length: float, later: dict[str, Any] | None) -> dict[str, float]:
    if "first_step_time" not in attempt:
        return {STARTUP: length}
    phases: dict[str, float] = attempt.get("seconds", {})
    startup = min(length, max(0.0, attempt["first_step_time"] - attempt["started"]))
    parts = {
        DATA_WAIT: phases.get(Phase.DATA.label, 0.0),
        CHECKPOINT: phases.get(Phase.CHECKPOINT.label, 0.0),
        EVALUATION: phases.get(Phase.EVALUATION.label, 0.0),
        TRAINING: sum(phases.get(phase.label, 0.0) for phase in STEPPING - {Phase.DATA}),
    }
    left = length - startup
    for bucket, seconds in parts.items():  # phases and attempt are timed by different processes
        parts[bucket] = min(seconds, left)
        left -= parts[bucket]
    cause = attempt.get("cause") or {}
    open_end = TRAINING if "ended" not in attempt else STALL if cause.get("kind") == STALLED else STOPPING
    parts[open_end] = parts.get(open_end, 0.0) + left
    lost = _lost_share(attempt, later) * parts[TRAINING]
    return {**parts, STARTUP: startup, LOST_WORK: lost, TRAINING: parts[TRAINING] - lost}


def _lost_share(attempt: dict[str, Any], later: dict[str, Any] | None) -> float:
    """Share of an attempt's steps that its successor made again."""
    if later is None:
        return 0.0
    made = attempt["last_step"] - attempt["first_step"] + 1
    return min(1.0, max(0, attempt["last_step"] - later["resumed_from"]) / made) if made > 0 else 0.0
