"""What a drill's run is judged by: each thing that can be wrong with it is found, and said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rankzero import contract
from scripts.drill.evidence import Evidence
from scripts.drill.judge import Story, Verdict, judge
from scripts.drill.plan import Drill, Ending, Fate, Record
from scripts.drill.scene import Seen

STEPS = 40
STRUCK = 1000.0
DRILL = Drill(
    name="test",
    done="a worker is killed after step 25",
    expected="it goes on from step 20",
    within=10,
    causes=(Record("worker", "rank 1 .*SIGKILL"),),
)
STORY = Story(installed=900.0, struck=STRUCK, over=0.0, released=True)
RESULT = {"steps": STEPS, "loss": 0.5, "weights_hash": 7}
KILLED = {"kind": "worker", "reason": "rank 1 (node rank 1) was ended by SIGKILL", "node_rank": 1}


def lines(attempt: int, first: int, last: int, *, began: float, rate: float = 0.1) -> list[dict[str, Any]]:
    """Metrics of some steps, one a tenth of a second; the loss follows from the step."""
    return [
        {
            "attempt": attempt,
            "step": step,
            "loss": 1 / step,
            "learning_rate": rate,
            "time": began + 0.1 * (step - first),
        }
        for step in range(first, last + 1)
    ]


def attempt(number: int, resumed_from: int, *, cause: dict[str, Any] | None, first_step_time: float) -> dict[str, Any]:
    return {
        "attempt": number,
        "resumed_from": resumed_from,
        "first_step_time": first_step_time,
        "ended": first_step_time + 5,
        "cause": cause,
        "nodes": [{"node_rank": rank, "uid": f"uid-{rank}"} for rank in (0, 1)],
    }


def evidence(resumed_from: int = 20, recovered: float = STRUCK + 4, **outcome: Any) -> Evidence:
    """A run that was struck after step 25 and went on from ``resumed_from``."""
    return Evidence(
        attempts=[
            attempt(1, 0, cause=KILLED, first_step_time=990.0),
            attempt(2, resumed_from, cause=None, first_step_time=recovered),
        ],
        metrics=[*lines(1, 1, 25, began=997.5), *lines(2, resumed_from + 1, STEPS, began=recovered)],
        outcome={
            "state": "succeeded", "exit_code": 0, "reason": "", "ended": 1010.0, "result": RESULT, **outcome,
        },
    )  # fmt: skip


UNDISTURBED = Evidence(
    attempts=[attempt(1, 0, cause=None, first_step_time=900.0)],
    metrics=lines(1, 1, STEPS, began=900.0),
    outcome={"result": RESULT},
)


def shortfalls(found: Evidence, drill: Drill = DRILL, story: Story = STORY) -> str:
    return "; ".join(judge(drill, story, found, UNDISTURBED).shortfalls)


def test_a_run_that_did_what_it_must_passes() -> None:
    verdict = judge(DRILL, STORY, evidence(), UNDISTURBED)
    assert verdict.shortfalls == ()
    assert verdict.seconds == 4.0
    assert verdict.steps_repeated == 5
    assert verdict.causes == ("worker: rank 1 (node rank 1) was ended by SIGKILL", "succeeded")


def test_steps_of_the_attempt_that_was_struck_are_not_taken_for_recovery() -> None:
    found = evidence()
    late = [{**line, "time": line["time"] + 3} for line in found.metrics if line["attempt"] == 1]
    rest = [line for line in found.metrics if line["attempt"] == 2]
    assert judge(DRILL, STORY, replace(found, metrics=late + rest), UNDISTURBED).seconds == 4.0


def test_where_no_attempt_is_to_end_the_longest_pause_counts() -> None:
    drill = replace(DRILL, causes=(), repeats=0)
    found = evidence(resumed_from=25)
    found = replace(
        found,
        attempts=[{**found.attempts[0], "cause": None}],
        metrics=[{**line, "attempt": 1} for line in found.metrics],
    )
    assert judge(drill, STORY, found, UNDISTURBED) == Verdict(4.1, ("succeeded",), 0, ())


def test_a_recovery_that_came_too_late_or_never() -> None:
    assert shortfalls(evidence(recovered=STRUCK + 12)) == "the next step came after 12.0 s, 10 s are allowed"
    never = evidence()
    del never.attempts[1]["first_step_time"]
    assert "the next step never came" in shortfalls(never)


def test_what_lasts_must_show() -> None:
    drill = replace(DRILL, causes=(), repeats=0, within=30, least=9)
    found = evidence(resumed_from=25, recovered=STRUCK + 4)
    found = replace(
        found,
        attempts=[{**found.attempts[0], "cause": None}],
        metrics=[{**line, "attempt": 1} for line in found.metrics],
    )
    assert shortfalls(found, drill) == (
        "the next step came after 4.1 s already: what lasts 9 s at least did not reach the run"
    )
    assert shortfalls(found, replace(drill, least=4)) == ""


def test_a_target_that_is_missed_is_no_shortfall() -> None:
    verdict = judge(DRILL, STORY, evidence(), UNDISTURBED)
    assert verdict.misses(replace(DRILL, target=3.9))
    assert not verdict.misses(replace(DRILL, target=4.0))
    assert not verdict.misses(DRILL)
    assert replace(verdict, seconds=None).misses(replace(DRILL, target=4.0))


def test_both_spans_are_there_where_the_clock_starts_late() -> None:
    verdict = judge(DRILL, replace(STORY, over=STRUCK + 3), evidence(), UNDISTURBED)
    assert (verdict.seconds, verdict.since_struck) == (1.0, 4.0)
    assert judge(DRILL, STORY, evidence(), UNDISTURBED).since_struck is None


PODS = {0: Seen("uid-0", 0), 1: Seen("uid-1", 0)}


@pytest.mark.parametrize(
    ("after", "fate"),
    [
        (Seen("uid-1", 0), "kept"),
        (Seen("uid-1", 1), "started again in place"),
        (Seen("uid-9", 0), "replaced"),
    ],
)
@pytest.mark.parametrize("wanted", Fate)
def test_what_became_of_a_pod(after: Seen, fate: str, wanted: Fate) -> None:
    story = replace(STORY, before=PODS, after={**PODS, 1: after})
    drill = replace(DRILL, pods={0: Fate.KEPT, 1: wanted})
    said = "" if fate == wanted.value else f"pod 1 was {fate}, not {wanted.value}"
    assert shortfalls(evidence(), drill, story) == said
    assert judge(drill, story, evidence(), UNDISTURBED).pods == {0: "kept", 1: fate}


def test_a_pod_that_was_replaced_between_two_looks_or_not_seen() -> None:
    drill = replace(DRILL, pods={1: Fate.KEPT})
    found = evidence()
    found.attempts[1]["nodes"][1]["uid"] = "uid-2"
    seen = replace(STORY, before=PODS, after=PODS)
    assert shortfalls(found, drill, seen) == "pod 1 was replaced, not kept"
    assert shortfalls(found, drill, replace(seen, after={**PODS, 1: Seen("uid-3", 0)})) == (
        "pod 1 was replaced 2 times, not kept"
    )
    assert shortfalls(evidence(), drill) == "pod 1 was not seen, not kept"


def test_another_cause_than_expected() -> None:
    found = evidence()
    found.attempts[0]["cause"] = {**KILLED, "reason": "rank 0 (node rank 0) ended with status 1"}
    assert "the record of attempt 1 says 'worker: rank 0 (node rank 0) ended with status 1'" in shortfalls(found)
    found.attempts[0]["cause"] = {**KILLED, "kind": "pod"}
    assert "the record of attempt 1 says 'pod: " in shortfalls(found)


def test_more_or_fewer_attempts_than_the_event_explains() -> None:
    assert "1 attempts ended before the last success, 0 expected" in shortfalls(evidence(), replace(DRILL, causes=()))
    perhaps = replace(DRILL, causes=DRILL.causes * 2, optional_causes=1)
    assert shortfalls(evidence(), perhaps) == ""
    once = replace(evidence(), attempts=evidence().attempts[1:])
    assert "0 attempts ended before the last success, 1 to 2 expected" in shortfalls(once, perhaps)
    twice = replace(DRILL, causes=DRILL.causes * 2)
    assert "1 attempts ended before the last success, 2 expected" in shortfalls(evidence(), twice)


def test_a_step_that_was_skipped() -> None:
    found = evidence()
    found.metrics.remove(next(line for line in found.metrics if line["step"] == 30))
    said = shortfalls(found)
    assert "steps [30] were skipped" in said
    assert "attempt 2 went on from step 20" in said


def test_more_steps_trained_again_than_since_the_last_checkpoint() -> None:
    assert shortfalls(evidence(resumed_from=10), replace(DRILL, repeats=10)) == (
        "15 steps were trained again, at most 10 are allowed"
    )
    graceful = replace(DRILL, repeats=0)
    assert shortfalls(evidence(), graceful) == "5 steps were trained again, at most 0 are allowed"
    assert shortfalls(evidence(resumed_from=25), graceful) == ""
    older = replace(DRILL, repeats=20, least_repeats=10)
    assert shortfalls(evidence(), older) == "5 steps were trained again, at least 10 expected"
    assert shortfalls(evidence(resumed_from=10), older) == ""


def test_one_bit_of_a_loss_or_of_the_result() -> None:
    found = evidence()
    found.metrics[-1]["loss"] += 1e-16
    assert shortfalls(found) == f"the loss of steps [{STEPS}] differs from that of the undisturbed run"
    assert "the result" in shortfalls(evidence(result={**RESULT, "weights_hash": 8}))
    assert "the other run's result" in shortfalls(evidence(), story=replace(STORY, other_results=({},)))


@pytest.mark.parametrize("loss", [None, float("nan"), float("inf")])
def test_losses_that_are_no_numbers_prove_nothing_however_equal(loss: float | None) -> None:
    found = evidence()
    found.metrics[-1]["loss"] = loss
    right = replace(UNDISTURBED, metrics=[*UNDISTURBED.metrics[:-1], {**UNDISTURBED.metrics[-1], "loss": loss}])
    said = judge(DRILL, STORY, found, right).shortfalls
    assert f"the loss of steps [{STEPS}] is not a finite number, so equal bits would say nothing" in said


def test_pods_that_stay() -> None:
    assert shortfalls(evidence(), story=replace(STORY, released=False)) == "its pods were not released"


def test_a_run_that_must_fail_is_judged_by_its_end() -> None:
    wanted = Ending("failed", contract.EXIT_RANK0_UNREACHABLE, "did not join")
    drill = replace(DRILL, ending=wanted)
    found = evidence(
        state="failed", exit_code=contract.EXIT_RANK0_UNREACHABLE, reason="node rank 1 did not join", ended=1008.0
    )
    found = replace(found, attempts=found.attempts[:1], metrics=lines(1, 1, 25, began=997.5))
    verdict = judge(drill, STORY, found, UNDISTURBED)
    assert verdict.shortfalls == ()
    assert verdict.seconds == 8.0
    assert "ended as failed with status 1, not failed with 68" in shortfalls(
        replace(found, outcome={**found.outcome, "exit_code": 1}), drill
    )
    assert shortfalls(found, replace(drill, ending=replace(wanted, words="rank [1-9] did"))) == ""  # a pattern
    assert "without 'did not join'" in shortfalls(replace(found, outcome={**found.outcome, "reason": "x"}), drill)
    assert "ended as succeeded with status 0, not failed with 68" in shortfalls(evidence(), drill)


@pytest.mark.parametrize(
    ("rate", "loss", "said"),
    [
        (0.1, 2.0, "the learning rates after the upgrade are [0.1]"),
        (0.3, 1 / STEPS, "the new learning rate has changed nothing"),
        (0.3, 2.0, ""),
    ],
)
def test_a_changed_rate_must_be_in_force_from_the_same_weights(rate: float, loss: float, said: str) -> None:
    drill = replace(DRILL, changed_rate=0.3, repeats=0)
    found = evidence(resumed_from=25, result={**RESULT, "weights_hash": 8})
    for line in found.metrics:
        line["learning_rate"] = rate if line["attempt"] == 2 else 0.1
    found.metrics[-1]["loss"] = loss
    assert shortfalls(found, drill) == said
    first = next(line for line in found.metrics if line["attempt"] == 2)
    first["loss"] += 1e-16
    if rate == 0.3:
        assert "did not start from the weights before it" in shortfalls(found, drill)
