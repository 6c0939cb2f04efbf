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
    rank: int,
    still: float,
    *,
    phase: str = "training",
    step: int = 7,
    step_seconds: float = 0.1,
    process: str = "S",
    watched: bool = True,
) -> RankBeat:
    return RankBeat(rank, watched, phase, step, still, step_seconds, step_seconds, process)


def judge(*beats: RankBeat, limits: StallConfig = LIMITS, world_size: int = 0) -> watchdog.Stall | None:
    dog = Watchdog(limits, world_size or len(beats))
    dog.hear(beats)
    return dog.verdict()


def test_a_group_in_which_any_rank_moves_has_not_stalled() -> None:
    assert judge(beat(0, 11), beat(1, 0.1)) is None
    assert judge(beat(0, 11), beat(1, 11)) is not None


def test_time_that_passes_without_a_report_counts_as_standing_still(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = Watchdog(LIMITS, 2)
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


def test_the_first_steps_of_an_attempt_are_part_of_its_start() -> None:
    """They compile, connect and fill caches, and nobody knows yet how long a step takes."""
    assert judge(beat(0, 99, phase="data", step=0, step_seconds=0)) is None
    assert judge(beat(0, 99, step=2, step_seconds=0)) is None
    assert judge(beat(0, 101, step=2, step_seconds=0)) is not None


def test_a_script_that_joins_the_group_but_reports_no_steps_is_not_watched() -> None:
    silent = {"phase": "startup", "step": 0, "step_seconds": 0.0, "watched": False}
    assert judge(beat(0, 10_000, **silent), beat(1, 10_000, **silent)) is None  # type: ignore[arg-type]


def test_ranks_that_have_ended_are_out_of_it() -> None:
    """Rank 0 writes the model out after the others have ended with status 0."""
    assert judge(beat(0, 150, phase="ending"), beat(1, 150, process=""), beat(2, 150, process="Z")) is None
    assert judge(beat(0, 10_000, process=""), beat(1, 10_000, process="")) is None
    stall = judge(beat(0, 201, phase="ending"), beat(1, 300, process=""))
    assert stall is not None
    assert stall.suspect == 0


def test_a_rank_that_has_never_reported_is_the_suspect_before_the_first_step_and_gives_more_time() -> None:
    waiting = [beat(rank, 99, step=0, step_seconds=0) for rank in (0, 1)]
    assert judge(*waiting, world_size=4) is None
    stall = judge(*(beat(rank, 101, step=0, step_seconds=0) for rank in (0, 1)), world_size=4)
    assert stall is not None
    assert stall.suspect == 2
    assert "ranks 2, 3 have not reported yet" in stall.reason
    assert judge(beat(0, 99), world_size=2) is None  # where only rank 0 reports at all


def test_a_rank_that_prepares_the_data_excuses_those_that_wait_for_it() -> None:
    preparing = beat(0, 3000, phase="preparation", step=0, step_seconds=0, watched=False)
    assert judge(preparing, beat(1, 3000, step=0, step_seconds=0)) is None


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
        beat(2, 13, phase="sync"),
    ],
    ids=["its process is stopped", "it is a step behind", "it does not wait for others", "it stopped first"],
)
def test_the_suspect_is_the_rank_that_the_others_wait_for(culprit: RankBeat) -> None:
    stall = judge(beat(0, 11, phase="sync"), beat(1, 11, phase="sync"), culprit, beat(3, 11, phase="sync"))
    assert stall is not None
    assert stall.suspect == culprit.rank


def test_nobody_is_blamed_for_a_millisecond() -> None:
    stall = judge(beat(0, 11.002), beat(1, 11.001), beat(2, 11.0))
    assert stall is not None
    assert stall.suspect == -1
    assert stall.reason == "no rank made progress for 11 s (3 in training after step 7); no rank stands out"


def test_stacks_tell_the_rank_that_is_somewhere_else() -> None:
    assert watchdog.odd_one_out({"0": "all_reduce", "1": "load", "2": "all_reduce"}) == 1
    assert watchdog.odd_one_out({"0": "all_reduce", "1": "load"}) == -1
    assert watchdog.odd_one_out({"0": "a", "1": "b", "2": "c"}) == -1
    assert watchdog.odd_one_out({"0": "a", "1": "a", "2": "a"}) == -1


def test_thousands_of_ranks_are_judged_within_a_moment() -> None:
    dog = Watchdog(LIMITS, 8000)
    dog.hear([beat(rank, 11) for rank in range(7999)] + [beat(7999, 0.1)])
    began = time.process_time()
    assert dog.verdict() is None
    assert time.process_time() - began < 1  # some milliseconds; on a slow machine too


@pytest.mark.slow
def test_a_frozen_rank_is_named_and_the_group_goes_on(make_group: MakeGroup) -> None:
    """Its process is stopped: it answers no signal but SIGKILL, and says nothing."""
    group = make_group("step", nodes=2, procs=2, stall={"least": 5}, stopTimeout=600).start()
    workers = group.wait_for_workers(1, 4)
    until(lambda: len(group.pods[0].status()["group"]["ranks"]) == 4, what="beats of all ranks")
    os.kill(int(workers[3]["pid"]), signal.SIGSTOP)
    (group.folder / "freeze").touch()
    group.wait_for_workers(2, 4)  # SIGTERM wakes a stopped process: SIGKILL would come ten minutes later
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    cause = group.attempt(1)["cause"]
    assert cause["kind"] == "stalled"
    assert cause["rank"] == 3
    assert cause["node_rank"] == 1
    assert cause["reason"].endswith("and the others wait: its process is stopped by a signal")  # it tells no line
    assert group.outcome()["time_s"]["stalled"] > 1.5


@pytest.mark.slow
def test_a_rank_that_hangs_in_python_is_found_with_its_line(make_group: MakeGroup) -> None:
    group = make_group("hang", "1", "5", nodes=2, procs=1, stall={"least": 5})
    group.constants |= {"evidence.STACK_WITHIN": 60, "coordinator.DUMP_WITHIN": 90}
    group.start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    record = group.attempt(1)
    assert (record["cause"]["kind"], record["cause"]["rank"]) == ("stalled", 1)
    assert "rank 1 is in phase data after step 5" in record["cause"]["reason"]
    assert 'rank 1 is at File "' in record["cause"]["reason"]
    assert 'worker.py", line' in record["cause"]["reason"]
    assert set(record["where"]) == {"0", "1"}
    stack = (group.state_dir / "attempts/0001/rank-00001.stack.txt").read_text()
    assert "wait_for_a_batch_that_never_comes" in stack
