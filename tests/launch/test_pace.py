"""The rank that the others wait for: found from what each needs by itself, and said once."""

from __future__ import annotations

import pytest

from rankzero.launch.pace import TELL_AFTER, Straggler, pace
from rankzero.launch.protocol import RankBeat


def beats(*own: float, step: float | None = None) -> list[RankBeat]:
    """Ranks of a synchronous training: a step takes all of them as long as the slowest."""
    whole = max(own) if step is None else step
    return [RankBeat(rank, True, "sync", 9, 0.01, whole, part, "S") for rank, part in enumerate(own)]


def test_the_slowest_is_compared_with_the_median_of_all() -> None:
    found = pace(beats(0.20, 0.21, 0.80, 0.19, 0.20))
    assert found is not None
    assert (found.rank, found.own, found.usual) == (2, 0.80, 0.20)
    assert found.lost == pytest.approx(0.75)
    assert str(found) == (
        "rank 2 needs 0.800 s for its own part of a step, the median of all is 0.200 s: "
        "the others wait for it 75% of the time"
    )


def test_of_two_ranks_the_faster_one_is_the_measure() -> None:
    found = pace(beats(0.1, 0.4))
    assert found is not None
    assert (found.rank, found.usual) == (1, 0.1)


@pytest.mark.parametrize("known", [[], beats(0.1), beats(0.0, 0.0)], ids=["none", "one", "before the first steps"])
def test_there_is_none_where_fewer_than_two_are_known(known: list[RankBeat]) -> None:
    assert pace(known) is None


def test_it_is_said_once_when_it_has_lasted_and_again_in_the_next_attempt() -> None:
    said: list[str] = []
    straggler = Straggler(said.append)
    for now in (0.0, 10.0, 20.0):
        straggler.judge(beats(0.1, 0.4), now)
    assert said == []
    for now in (TELL_AFTER, TELL_AFTER + 10):
        straggler.judge(beats(0.1, 0.4), now)
    assert len(said) == 1
    straggler.forget()
    for now in (100.0, 100.0 + TELL_AFTER):
        straggler.judge(beats(0.1, 0.4), now)
    assert len(said) == 2


def test_nobody_is_named_where_it_is_another_each_time_or_costs_little() -> None:
    said: list[str] = []
    straggler = Straggler(said.append)
    for now in range(0, 200, 10):
        straggler.judge(beats(*((0.1, 0.4) if now % 20 else (0.4, 0.1))), float(now))
    for now in range(200, 400, 10):
        straggler.judge(beats(0.1, 0.105), float(now))
    for now in range(400, 600, 10):
        straggler.judge(beats(0.001, 0.01, step=1.0), float(now))  # most of the step is communication
    assert said == []
