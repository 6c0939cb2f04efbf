"""Where the time of a run went."""

from __future__ import annotations

from typing import Any

import pytest

from rankzero.launch import ledger


def attempt(started: float, **more: Any) -> dict[str, Any]:
    return {"attempt": 1, "started": started, **more}


FIRST = attempt(
    110.0, ended=210.0, first_step=1, last_step=80, resumed_from=0, first_step_time=120.0, last_time=205.0,
    seconds={"startup": 9.0, "training": 70.0, "data": 5.0, "checkpoint": 8.0, "evaluation": 2.0},
    cause={"kind": "pod", "reason": "lost"},
)  # fmt: skip
SECOND = attempt(
    220.0, ended=270.0, first_step=61, last_step=100, resumed_from=60, first_step_time=225.0, last_time=268.0,
    seconds={"training": 40.0, "checkpoint": 3.0}, cause=None,
)  # fmt: skip


def test_buckets_add_up_to_the_whole_time() -> None:
    spent = ledger.ledger([FIRST, SECOND], began=100.0, now=280.0)
    assert sum(spent.values()) == pytest.approx(180.0)
    assert spent["waiting for pods"] == 10 + 10 + 10
    assert spent["startup"] == 10 + 5
    assert spent["data wait"] == 5
    assert spent["checkpoint"] == 11
    assert spent["evaluation"] == 2


def test_steps_that_were_made_again_are_lost_work() -> None:
    spent = ledger.ledger([FIRST, SECOND], began=110.0, now=270.0)
    assert spent["lost work"] == pytest.approx(70 * 20 / 80)
    assert spent["training"] == pytest.approx(70 * 60 / 80 + 40)
    assert ledger.goodput(spent) == pytest.approx(spent["training"] / 160)


def test_an_attempt_without_a_step_between_two_others_hides_no_lost_work() -> None:
    failed = attempt(211.0, ended=215.0, cause={"kind": "worker", "reason": "x"})
    spent = ledger.ledger([FIRST, failed, SECOND], began=110.0, now=270.0)
    assert spent["lost work"] == pytest.approx(70 * 20 / 80)
    assert spent["startup"] == 10 + 4 + 5


def test_the_end_of_a_stalled_attempt_is_a_stall_and_that_of_another_is_stopping() -> None:
    left = 100 - 10 - 85
    stalled = {**FIRST, "cause": {"kind": "stalled", "reason": "x"}}
    assert ledger.ledger([stalled], began=110, now=210)["stalled"] == left
    assert ledger.ledger([FIRST], began=110, now=210)["stopping"] == left


def test_time_is_counted_against_the_cause_that_took_it() -> None:
    lost = ledger.lost_by_cause([FIRST, SECOND], began=110.0, now=270.0)
    assert lost == {"pod": pytest.approx(70 * 20 / 80 + 5 + 10 + 5)}  # work, stopping, waiting, starting


def test_a_clock_that_is_set_meanwhile_does_not_make_time_negative() -> None:
    """Known failure: clocks step. ``elapsed`` comes from the monotonic one."""
    jumped = {**FIRST, "ended": 50.0, "elapsed": 100.0}
    spent = ledger.ledger([jumped], began=110.0, now=60.0)
    assert min(spent.values()) >= 0
    assert sum(spent.values()) == pytest.approx(100.0)


def test_a_run_that_has_not_begun_is_waiting() -> None:
    spent = ledger.ledger([], began=100.0, now=130.0)
    assert spent["waiting for pods"] == 30
    assert ledger.sentence(spent) == "goodput 0% (waiting for pods 30 s)"
