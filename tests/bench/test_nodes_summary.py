"""From timed runs of the playbooks to targets and to 200 nodes."""

from __future__ import annotations

import pytest

from bench.nodes import summary
from bench.nodes.measure import RECAP, Run


def run(nodes: int, seconds: float, playbook: str = "site", forks: int = 10, changed: int = 0) -> Run:
    """A run whose processor time is half of its seconds."""
    return Run(playbook, nodes, forks, seconds, seconds / 2, tasks=50 * nodes, changed=changed)


RUNS = [run(2, 10), run(4, 16), run(10, 30), run(10, 40, forks=5), run(10, 25, "check")]


def test_200_nodes_are_on_the_line_through_the_smallest_and_the_largest_run_at_the_same_forks() -> None:
    found = summary.document(RUNS, 6.0)["projection"]

    assert (found["start_s"], found["seconds_a_node"], found["seconds"]) == (5.0, 2.5, 505)
    assert found["controller_cpu_seconds_a_node"] == 1.25
    assert found["off_by_percent"] == {"4": -6.2}


def test_every_target_has_its_value_at_the_most_forks() -> None:
    found = summary.document(RUNS, 6.0)["targets"]

    assert {name: target["value"] for name, target in found.items()} == {
        "site_serially_s_a_node": 6.0,
        "site_all_s": 30,
        "site_changed": 0,
        "check_all_s": 25,
    }
    assert all(target["met"] for target in found.values())


@pytest.mark.parametrize(
    ("runs", "serial", "missed"),
    [
        ([*RUNS, run(10, 61)], 6.0, "site_all_s"),
        ([*RUNS, run(10, 61, "check")], 6.0, "check_all_s"),
        ([*RUNS, run(10, 30, changed=1)], 6.0, "site_changed"),
        (RUNS, 20.1, "site_serially_s_a_node"),
    ],
)
def test_a_target_that_is_missed_says_so(runs: list[Run], serial: float, missed: str) -> None:
    found = summary.document(runs, serial)["targets"]

    assert [name for name, target in found.items() if not target["met"]] == [missed]


def test_the_recap_is_read_as_ansible_writes_it() -> None:
    text = "gpu-1   : ok=44   changed=3    unreachable=0    failed=0    skipped=11   rescued=0    ignored=0   \n"

    assert RECAP.findall(text) == [("44", "3", "0", "0", "11")]
