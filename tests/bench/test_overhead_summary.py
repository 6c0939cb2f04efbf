"""What bench.overhead makes of its seconds."""

from __future__ import annotations

from bench.overhead import summary


def seconds(bare: list[float], library: list[float]) -> summary.Seconds:
    loops = {"bare": bare, "again": bare, "library": library}
    return {name: {"wall": found, "processor": found} for name, found in loops.items()}


def test_turns_that_followed_each_other_are_compared_so_that_a_slow_moment_counts_for_neither() -> None:
    found = summary.of_case([seconds([0.1, 0.3, 0.1], [0.101, 0.301, 0.101])])
    assert found["overhead_wall"]["median"] == 0.01
    assert found["bare_ms"] == 100
    assert found["control_wall"] == {"median": 0, "low": 0, "high": 0}


def test_the_spread_of_many_turns_is_narrow_and_that_of_few_is_all_of_them() -> None:
    assert summary.spread([1, 2, 6]) == {"median": 2, "low": 1, "high": 6}
    many = summary.spread(list(range(100)))  # between the 41st and the 60th of 100, as tables of the binomial say
    assert many == {"median": 49.5, "low": 39, "high": 60}


def test_the_target_is_for_the_turns_of_all_runs_and_scaling_compares_processes() -> None:
    ours = [seconds([0.1], [library]) for library in (0.1005, 0.5, 0.1)]
    document = summary.document({"1 x 8": ours, "2 x 8": [seconds([0.2], [0.201])]})
    assert document["targets"]["overhead, 1 x 8"] == {"value": 0.005, "target": 0.01, "met": True}
    assert document["cases"]["1 x 8"]["overhead_wall_of_each_run"] == [0.005, 4, 0]
    assert document["scaling"] == {"8": {"bare": 0.5, "library": 0.5}}
