"""What bench.overhead makes of its seconds."""

from __future__ import annotations

from bench.overhead import summary


def seconds(bare: list[float], library: list[float]) -> summary.Seconds:
    return {"bare": {"wall": bare, "processor": bare}, "library": {"wall": library, "processor": library}}


def test_steps_of_a_turn_are_compared_so_that_a_slow_moment_counts_for_neither() -> None:
    found = summary.of_run(seconds([0.1, 0.3, 0.1], [0.101, 0.301, 0.101]))
    assert round(found["overhead_wall"], 6) == 0.01
    assert found["bare_ms"] == 100


def test_the_target_is_for_the_median_of_the_runs_and_scaling_compares_processes() -> None:
    ours = [seconds([0.1], [library]) for library in (0.1005, 0.5, 0.1)]
    document = summary.document({"1 x 8": ours, "2 x 8": [seconds([0.2], [0.201])]})
    assert document["targets"]["overhead, 1 x 8"] == {"value": 0.005, "target": 0.01, "met": True}
    assert document["scaling"] == {"8": 0.5}
