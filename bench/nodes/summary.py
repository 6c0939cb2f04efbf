"""From timed runs to targets, and to what 200 nodes would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.nodes.measure import Run
from bench.result_file import at_most

SITE, CHECK = "site", "check"
SERIAL_S, ALL_S = 20.0, 60.0
PROJECTED_NODES = 200
HOW = (
    "the line through the runs of site.yml with the fewest and the most nodes at the same forks; the runs between say"
    " how far it is off. A controller that does not share its cores with the nodes is faster, but never faster than"
    " Ansible's processor time divided by its cores."
)


def document(runs: Sequence[Run], serial_seconds: float) -> dict[str, Any]:
    """What the result file says of the ``runs``; ``serial_seconds`` is what a node takes when it comes alone."""
    return {
        "runs": [run.document() for run in runs],
        "targets": targets(runs, serial_seconds),
        "projection": projection([run for run in runs if run.playbook == SITE and run.forks == _most_forks(runs)]),
    }


def targets(runs: Sequence[Run], serial_seconds: float) -> dict[str, Any]:
    """The figures beside what they should be."""
    slowest = {
        playbook: max(run.seconds for run in runs if run.playbook == playbook and run.forks == _most_forks(runs))
        for playbook in (SITE, CHECK)
    }
    return {
        "site_serially_s_a_node": at_most(round(serial_seconds, 2), SERIAL_S),
        "site_all_s": at_most(round(slowest[SITE], 2), ALL_S),
        "site_changed": at_most(max(run.changed for run in runs), 0),
        "check_all_s": at_most(round(slowest[CHECK], 2), ALL_S),
    }


def projection(runs: Sequence[Run]) -> dict[str, Any]:
    """The line through the smallest and the largest run, and how far the others lie off it."""
    small, *between, large = sorted(runs, key=lambda run: run.nodes)
    a_node = (large.seconds - small.seconds) / (large.nodes - small.nodes)
    start = small.seconds - a_node * small.nodes
    return {
        "nodes": PROJECTED_NODES,
        "forks": large.forks,
        "start_s": round(start, 2),
        "seconds_a_node": round(a_node, 2),
        "controller_cpu_seconds_a_node": round(
            (large.controller_cpu_seconds - small.controller_cpu_seconds) / (large.nodes - small.nodes), 2
        ),
        "seconds": round(start + a_node * PROJECTED_NODES),
        "off_by_percent": {
            str(run.nodes): round(100 * (start + a_node * run.nodes - run.seconds) / run.seconds, 1) for run in between
        },
        "how": HOW,
    }


def _most_forks(runs: Sequence[Run]) -> int:
    return max(run.forks for run in runs)
