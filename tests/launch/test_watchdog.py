"""A group that has stopped to move: noticed, named, ended (known failure A6)."""

from __future__ import annotations

import os
import signal
import time

import pytest

from rankzero.config import StallConfig
from rankzero.launch import watchdog
from rankzero.launch.protocol import RankBeat
from rankzero.launch.watchdog import Watchdog
from tests.launch.conftest import MakeGroup
from tests.waiting import until

LIMITS = StallConfig(factor=5, least=10, startup=100, checkpoint=50, evaluation=200)


def beat(
    rank: int, still: float, *, phase: str = "training", step: int = 7, step_seconds: float = 0.1, process: str = "S"
) -> RankBeat:
    return RankBeat(rank=rank, phase=phase, step=step, still=still, step_seconds=step_seconds, process=process)


def judge(*beats: RankBeat, limits: StallConfig = LIMITS) -> watchdog.Stall | None:
    dog = Watchdog(limits)
    dog.hear(beats)
    return dog.verdict()


def test_a_group_in_which_any_rank_moves_has_not_stalled() -> None:
    assert judge(beat(0, 11), beat(1, 0.1)) is None
    assert judge(beat(0, 11), beat(1, 11)) is not None


def test_time_that_passes_without_a_report_counts_as_standing_still(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = Watchdog(LIMITS)
    dog.hear([beat(0, 1), beat(1, 2)])
    assert dog.verdict() is None
    later = time.monotonic() + 9.5
    monkeypatch.setattr(time, "monotonic", lambda: later)
    stall = dog.verdict()
    assert stall is not None
    assert "no rank made progress for 11 s" in stall.reason


def test_a_step_may_take_its_multiple_of_the_steps_before() -> None:
    assert judge(beat(0, 149, step_seconds=30.0), beat(1, 149, step_seconds=30.0)) is None
    assert judge(beat(0, 151, step_seconds=30.0), beat(1, 151, step_seconds=30.0)) is not None


@pytest.mark.parametrize(
    ("phase", "limit"), [("startup", 100), ("checkpoint", 50), ("evaluation", 200), ("preparation", 7200)]
)
def test_phases_that_take_long_have_limits_of_their_own(phase: str, limit: int) -> None:
    assert judge(beat(0, limit - 1, phase=phase)) is None
    assert judge(beat(0, limit + 1, phase=phase)) is not None


def test_the_first_step_of_an_attempt_is_part_of_its_start() -> None:
    """It compiles, connects and fills caches."""
    assert judge(beat(0, 99, phase="data", step=0)) is None


def test_one_rank_that_is_long_at_a_checkpoint_excuses_the_others() -> None:
    """Known failure: dataset preparation and checkpoints on one rank trip the others' time limit."""
    assert judge(beat(0, 30, phase="checkpoint"), beat(1, 30), beat(2, 30)) is None


def test_nothing_is_judged_before_a_rank_beats_or_where_it_is_switched_off() -> None:
    assert judge() is None
    assert judge(beat(0, 10_000), limits=StallConfig(enabled=False)) is None


@pytest.mark.parametrize(
    "culprit",
    [
        beat(2, 11, process="T"),
        beat(2, 11, step=6),
        beat(2, 11, phase="data"),
        beat(2, 12, phase="sync"),
    ],
    ids=["its process is stopped", "it is a step behind", "it does not wait for others", "it stopped first"],
)
def test_the_suspect_is_the_rank_that_the_others_wait_for(culprit: RankBeat) -> None:
    stall = judge(beat(0, 11, phase="sync"), beat(1, 11, phase="sync"), culprit, beat(3, 11, phase="sync"))
    assert stall is not None
    assert stall.suspect is culprit


def test_a_frozen_rank_is_named_and_the_group_goes_on(make_group: MakeGroup) -> None:
    """Its process is stopped: it answers no signal but SIGKILL, and says nothing."""
    group = make_group("step", nodes=2, procs=2, stall={"least": 2}, stopTimeout=20).start()
    workers = group.wait_for_workers(1, 4)
    until(lambda: len(group.pods[0].status()["group"]["ranks"]) == 4, timeout=15, what="beats of all ranks")
    os.kill(int(workers[3]["pid"]), signal.SIGSTOP)
    (group.folder / "freeze").touch()
    began = time.monotonic()
    group.wait_for_workers(2, 4)
    assert time.monotonic() - began < 15  # SIGTERM wakes a stopped process: no need to wait for SIGKILL
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    cause = group.attempt(1)["cause"]
    assert cause["kind"] == "stalled"
    assert cause["rank"] == 3
    assert cause["node_rank"] == 1
    assert "its process is stopped by a signal" in cause["reason"]
    assert group.outcome()["time_s"]["stalled"] > 1.5


def test_a_rank_that_hangs_in_python_is_found_with_its_line(make_group: MakeGroup) -> None:
    group = make_group("hang", "1", "5", nodes=2, procs=1, stall={"least": 2}).start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    record = group.attempt(1)
    assert (record["cause"]["kind"], record["cause"]["rank"]) == ("stalled", 1)
    assert "phase data after step 5" in record["cause"]["reason"]
    assert 'worker.py", line' in record["cause"]["reason"]
    assert set(record["where"]) == {"0", "1"}
    stack = (group.state_dir / "attempts/0001/rank-00001.stack.txt").read_text()
    assert "wait_for_a_batch_that_never_comes" in stack
