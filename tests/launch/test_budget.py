"""When another attempt is not worth it (known failure A8)."""

from __future__ import annotations

from typing import Any

import pytest

from rankzero import contract
from rankzero.launch.budget import give_up, without_progress

LIMIT = 3


def attempt(
    kind: str, *, step: int = 0, error: str = "", code: int = 1, seconds: float = 1.0, **more: Any
) -> dict[str, Any]:
    how = {"exit_code": code, "signal": "", "out_of_memory": False, "error": error}
    failure = how if kind == "worker" else None
    record = {"started": 0.0, "ended": seconds, "cause": {"kind": kind, "reason": "why", "failure": failure}, **more}
    return {**record, "first_step": 1, "last_step": step} if step else record


def test_nothing_has_failed_yet() -> None:
    assert give_up([], LIMIT) == ""


def test_lost_and_stopped_pods_never_count() -> None:
    assert give_up([attempt("pod"), attempt("stopped")] * 20, 1) == ""


def test_attempts_that_gain_no_step_count_and_a_gained_step_starts_over() -> None:
    stuck = [attempt("worker", step=5, error=str(i)) for i in range(3)]
    assert without_progress(stuck) == 2
    assert give_up(stuck, LIMIT) == ""
    fourth = [*stuck, attempt("worker", step=5, error="d")]
    assert give_up(fourth, LIMIT) == "3 attempts in a row gained no step; the last: why"
    assert without_progress([*fourth, attempt("worker", step=6)]) == 0


def test_steps_that_no_checkpoint_keeps_are_no_progress() -> None:
    """Each attempt comes a little further, and all of it is lost."""
    records = [attempt("worker", step=step, error=str(step), saved_step=100) for step in (150, 160, 170, 180)]
    assert without_progress(records) == 3
    assert give_up(records, LIMIT) == "3 attempts in a row gained no new checkpoint; the last: why"
    assert without_progress([*records, attempt("worker", step=210, saved_step=200)]) == 0


@pytest.mark.parametrize("code", [contract.EXIT_USAGE, contract.EXIT_DO_NOT_RETRY])
def test_a_status_that_says_so_is_not_retried(code: int) -> None:
    assert "this status is not retried" in give_up([attempt("worker", step=5, code=code)], LIMIT)


def test_a_stall_counts() -> None:
    assert without_progress([attempt("stalled", step=5)] * 4) == 3


def test_a_lost_pod_between_two_failures_neither_counts_nor_forgives() -> None:
    records = [attempt("worker", step=5, error="a"), attempt("worker", step=5, error="b"), attempt("pod", step=5)]
    assert without_progress(records) == 1


def test_the_same_error_at_the_same_step_twice_ends_the_run() -> None:
    twice = [attempt("worker", step=7, error="ValueError: x"), attempt("worker", step=7, error="ValueError: x")]
    assert give_up(twice, 100) == "the same error at the same step twice: why"
    elsewhere = [attempt("worker", step=7, error="ValueError: x"), attempt("worker", step=8, error="ValueError: x")]
    assert give_up(elsewhere, 100) == ""


def test_a_crash_before_the_first_step_is_retried_once() -> None:
    assert give_up([attempt("worker")], LIMIT) == ""
    assert "before their first step" in give_up([attempt("worker"), attempt("worker")], LIMIT)


def test_a_long_attempt_of_a_script_that_reports_no_steps_is_no_early_crash() -> None:
    assert give_up([attempt("worker", seconds=3600), attempt("worker", seconds=3600)], LIMIT) == ""


def test_a_container_that_ends_by_itself_counts() -> None:
    assert "gained no step" in give_up([attempt("container")] * 3, LIMIT)


def test_a_status_that_is_not_retried_ends_the_run_at_once() -> None:
    assert "not retried" in give_up([attempt("worker", step=5, code=contract.EXIT_USAGE)], LIMIT)


def test_what_failed_before_somebody_started_the_run_again_is_forgiven() -> None:
    failed = [attempt("worker"), attempt("worker", run_failed=True)]
    assert give_up(failed, LIMIT) == ""
    assert give_up([*failed, attempt("worker")], LIMIT) == ""
