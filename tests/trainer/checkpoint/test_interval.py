"""When a save is due: after the same step on all ranks, whatever their clocks say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankzero.config import CheckpointConfig
from rankzero.errors import ConfigError
from rankzero.train.checkpoint.interval import FIRST, Interval, optimal
from rankzero.train.checkpoint.peers import Peers
from tests.trainer.ranks import run


class Clock:
    """Monotonic time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("rankzero.train.checkpoint.interval.time.monotonic", clock)
    return clock


def saves(interval: Interval, clock: Clock, seconds: float, steps: int, cost: float = 0.0) -> list[float]:
    """The times, in seconds from the beginning, at which a save was due in ``steps`` steps of ``seconds`` each."""
    began, found = clock.now, []
    for step in range(1, steps + 1):
        clock.now += seconds
        if interval.due(step):
            found.append(clock.now - began)
            clock.now += cost
            interval.saved(step, cost)
    return found


def test_steps_alone_count_where_no_time_is_set(clock: Clock) -> None:
    assert saves(Interval(CheckpointConfig(every_steps=10), Peers(), 0), clock, 1.0, 35) == [10, 20, 30]


def test_minutes_or_steps_whichever_comes_first(clock: Clock) -> None:
    config = CheckpointConfig(every_steps=100, every_minutes=1)
    assert saves(Interval(config, Peers(), 0), clock, 1.0, 130) == [60, 100]


@given(st.floats(0.001, 100), st.integers(1, 30))
def test_a_save_by_time_is_at_most_one_step_late(seconds: float, minutes: int) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankzero.train.checkpoint.interval.time.monotonic", clock)
        config = CheckpointConfig(every_steps=0, every_minutes=float(minutes))
        steps = min(int(minutes * 60 / seconds * 1.5) + 2, 5000)
        for due in saves(Interval(config, Peers(), 0), clock, seconds, steps)[:1]:
            assert minutes * 60 - 1e-6 <= due <= minutes * 60 + seconds + 1e-6


def test_ranks_talk_a_few_times_and_not_after_every_step(clock: Clock) -> None:
    asked = []

    class Counting(Peers):
        def broadcast(self, value: Any, source: int = 0) -> Any:
            asked.append(value)
            return super().broadcast(value, source)

    assert saves(Interval(CheckpointConfig(every_steps=0, every_minutes=10), Counting(), 0), clock, 0.1, 6001) == [
        pytest.approx(600, abs=0.11)
    ]
    assert len(asked) < 20


def test_auto_begins_early_and_then_takes_the_optimum(clock: Clock) -> None:
    interval = Interval(CheckpointConfig(interval="auto", mtbf_hours=10), Peers(), 0)
    first, second, *_ = saves(interval, clock, 1.0, 2000, cost=5.0)
    assert first == FIRST
    assert second - first - 5 == pytest.approx(optimal(5.0, 36000), abs=2)


def test_auto_is_never_shorter_than_a_save_takes_to_become_durable() -> None:
    interval = Interval(CheckpointConfig(interval="auto", mtbf_hours=1), Peers(), 0)
    interval.saved(1, cost=0.01)
    interval.whole = 300.0
    assert interval.seconds == 300.0


def test_the_optimum_is_dalys() -> None:
    """Worked by hand: cost 5 min, MTBF 24 h: sqrt(2*5*1440) = 120 min, and Daly's corrections."""
    minutes = optimal(300, 24 * 3600) / 60
    assert minutes == pytest.approx(120 * (1 + (5 / 2880) ** 0.5 / 3 + (5 / 2880) / 9) - 5, rel=1e-9)
    assert optimal(100, 10) == 10  # a save takes longer than a failure is away


@given(st.floats(0.01, 1000), st.floats(3000, 1e7))
def test_the_optimum_loses_less_than_its_neighbours(cost: float, mtbf: float) -> None:
    def lost(seconds: float) -> float:
        """Share of time, to first order: saves, and half an interval made again at each failure."""
        return cost / seconds + (seconds + cost) / 2 / mtbf

    best = optimal(cost, mtbf)
    assert lost(best) <= min(lost(best * 2), lost(best / 2))


def test_an_interval_that_never_comes_is_refused() -> None:
    with pytest.raises(ConfigError, match="everySteps and everyMinutes are both 0"):
        CheckpointConfig(every_steps=0)


def due_steps(rank: int) -> list[int]:
    """Steps after which a save is due, where the clock of rank 1 runs at another speed."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankzero.train.checkpoint.interval.time.monotonic", clock)
        interval = Interval(CheckpointConfig(every_steps=0, every_minutes=1), Peers(), 0)
        found = []
        for step in range(1, 200):
            clock.now += 1.0 + 7 * rank
            if interval.due(step):
                found.append(step)
                interval.saved(step, 0.0)
    return found


@pytest.mark.slow
def test_rank_0s_clock_counts_for_all() -> None:
    assert run(due_steps, 2) == [[60, 120, 180]] * 2
