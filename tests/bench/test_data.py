"""What bench.data makes of its measurements, and that its reader of our shards is exact over kills."""

from __future__ import annotations

from typing import Any

import pytest

from bench.data import exactness, summary

ROUTE = {"exact": True, "missing": 0, "repeated": 0, "steps_differ": False}
DOCUMENT: dict[str, Any] = {
    "exactness": {
        "rankzero": {"killed": ROUTE | {"as_undisturbed": True}},
        "other": {"killed": ROUTE | {"repeated": 2, "steps_differ": True, "as_undisturbed": False}},
        "worst": {"killed": {"exact": False, "fails": "Error: of some kind"}},
    },
    "dependencies": {
        name: {"packages": 1, "megabytes": 2.5, "import_s": 0.1} for name in ("rankzero", "other", "worst")
    },
    "speed": {
        "samples_per_second": {
            "rankzero": {"cold": {"median": 94}, "warm": {"median": 1500}},
            "other": {"cold": {"median": 100}, "warm": {"median": 1000}},
            "worst": {"fails": "Error: of some kind"},
        }
    },
}


def test_the_target_of_each_cell_is_the_fastest_other_reader() -> None:
    found = summary.targets(DOCUMENT["speed"]["samples_per_second"])
    assert found == {
        "cold": {"value": 0.94, "target": 0.95, "met": False, "fastest_peer": "other"},
        "warm": {"value": 1.5, "target": 0.95, "met": True, "fastest_peer": "other"},
    }


def test_the_tables_say_how_each_fell_short() -> None:
    document = DOCUMENT | {"targets": summary.targets(DOCUMENT["speed"]["samples_per_second"])}
    assert [row[1] for row in summary.exactness(document)[1:]] == [
        "each once",
        "2 repeated, other batches, ranks take unequal steps",
        "fails",
    ]
    assert summary.speed(document)[1:] == [
        ["rankzero", "94", "1,500"],
        ["other", "100", "1,000"],
        ["worst", "fails", "fails"],
        ["rankzero / fastest other, target 0.95", "0.94 (other), **missed**", "1.50 (other)"],
    ]


def test_a_reader_that_was_measured_alone_is_held_against_nothing() -> None:
    alone = {"samples_per_second": {"rankzero": DOCUMENT["speed"]["samples_per_second"]["rankzero"]}}
    assert summary.targets(alone["samples_per_second"]) == {}
    assert summary.speed({"speed": alone, "targets": {}})[-1][1:] == ["", ""]


@pytest.mark.slow
def test_ranks_that_are_killed_are_measured_as_exact_in_the_same_batches() -> None:
    found = exactness.compare("rankzero")
    assert set(found) == set(exactness.ROUTES)
    assert all(route["exact"] and not route["steps_differ"] for route in found.values())
    assert found["killed, 1 -> 2 workers a rank"]["as_undisturbed"]
