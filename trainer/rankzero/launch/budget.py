"""Is another attempt worth it? Judged from the attempt records alone, so that a new rank 0 decides alike."""

from __future__ import annotations

from typing import Any

from rankzero import contract
from rankzero.heartbeat import NOT_TOLD
from rankzero.launch.causes import CONTAINER, STALLED, WORKER

COUNTED = {WORKER, CONTAINER, STALLED}
"""Kinds of causes that say something about the script."""

NOT_RETRIED = {contract.EXIT_USAGE, contract.EXIT_DO_NOT_RETRY}
"""Exit codes of a worker that say: the same again cannot help."""
EARLY = 120.0
"""Seconds within which an attempt without a step ended before it began; scripts that report no steps may run longer."""


def give_up(attempts: list[dict[str, Any]], limit: int) -> str:
    """Why the run should end now, empty where another attempt is worth it. ``attempts`` are closed records.

    Lost and stopped pods do not count: they say nothing about the script. A container that died by itself does,
    since running out of memory looks like that, and so does a stall.
    """
    attempts = since_restart(attempts)
    if not attempts:
        return ""
    last = attempts[-1]
    cause = last.get("cause")
    if not cause or cause["kind"] not in COUNTED:
        return ""
    failure = cause["failure"]
    if failure and failure["exit_code"] in NOT_RETRIED:
        return f"{cause['reason']} (this status is not retried)"
    counted = without_progress(attempts)
    if counted >= limit:
        return f"{counted} attempts in a row gained {_what(last)}; the last: {cause['reason']}"
    before = attempts[-2] if len(attempts) > 1 else None
    if before is None or not before.get("cause") or before["cause"]["kind"] != cause["kind"]:
        return ""
    if _is_early(last) and _is_early(before):
        return f"two attempts in a row failed before their first step; the last: {cause['reason']}"
    if _same_error(last, before):
        return f"the same error at the same step twice: {cause['reason']}"
    return ""


def _what(attempt: dict[str, Any]) -> str:
    return "no new checkpoint" if _tells_of_checkpoints(attempt) else "no step"


def since_restart(attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attempts since somebody started a failed run again: what failed before is forgiven."""
    ends = [index for index, attempt in enumerate(attempts) if attempt.get("run_failed")]
    return attempts[ends[-1] + 1 :] if ends else attempts


def without_progress(attempts: list[dict[str, Any]]) -> int:
    """Attempts in a row, up to the last, that the script or its container ended without gaining anything.

    What is gained is a new checkpoint, or a new step where the script does not tell of its checkpoints.
    """
    best = counted = 0
    for attempt in since_restart(attempts):
        gained = _gained(attempt)
        if gained > best:
            best, counted = gained, 0
        elif (cause := attempt.get("cause")) and cause["kind"] in COUNTED:
            counted += 1
    return counted


def _gained(attempt: dict[str, Any]) -> int:
    return int(attempt["saved_step"] if _tells_of_checkpoints(attempt) else attempt.get("last_step", 0))


def _tells_of_checkpoints(attempt: dict[str, Any]) -> bool:
    return bool(attempt.get("saved_step", NOT_TOLD) != NOT_TOLD)


def _is_early(attempt: dict[str, Any]) -> bool:
    return "last_step" not in attempt and attempt["ended"] - attempt["started"] < EARLY


def _same_error(one: dict[str, Any], other: dict[str, Any]) -> bool:
    first, second = one["cause"]["failure"], other["cause"]["failure"]
    if not first or not second or not first["error"]:
        return False
    if first["signal"] == "SIGKILL" and not first["out_of_memory"]:  # somebody's doing, not the script's
        return False
    return bool(first["error"] == second["error"] and "last_step" in one and one["last_step"] == other.get("last_step"))
