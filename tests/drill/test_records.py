"""What drills demand of the records: each accepts what its own fault left there, and refuses what others leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench import result_file
from scripts.drill.catalogue import DRILLS, named
from scripts.drill.ground import STRATEGIES
from scripts.drill.plan import Drill
from scripts.drill.results import name_of

ALIKE = (
    {"worker-killed", "checkpoint-damaged", "killed-in-save"},
    {"launcher-killed", "coordinator-crowded", "node-restarted"},
    {"launcher-0-killed", "node-0-stopped"},
    {
        "pod-0-deleted", "pod-1-deleted", "pod-0-force-deleted", "pod-1-force-deleted", "all-pods-stopped",
        "pod-evicted", "both-pods-evicted", "node-drained", "upgraded",
    },
    {"network-cut", "node-away", "node-power-lost"},
    {"error-always", "error-once"},
)  # fmt: skip
"""Drills whose faults leave the same words; what tells them apart is the fate of pods, the steps and the ending."""
RECORDED: dict[str, Any] = (result_file.read("drills") or {"drills": {}})["drills"]
WITH_CAUSE = [drill for drill in DRILLS if drill.causes]


def causes(name: str) -> Iterator[dict[str, str]]:
    """What the kept results say of the attempts that ended."""
    for recorded in (name_of(named(name), strategy) for strategy in STRATEGIES):
        for said in RECORDED.get(recorded, {}).get("cause", []):
            kind, found, reason = said.partition(": ")
            if found:
                yield {"kind": kind, "reason": reason}


def accepts(drill: Drill, cause: dict[str, str]) -> bool:
    return any(record.fits(cause) for record in drill.causes)


@pytest.mark.parametrize(
    "drill", [drill for drill in WITH_CAUSE if drill.name in RECORDED], ids=lambda drill: drill.name
)
def test_a_drill_accepts_what_it_has_left_itself(drill: Drill) -> None:
    own = list(causes(drill.name))
    assert own
    assert [cause for cause in own if not accepts(drill, cause)] == []


@pytest.mark.parametrize("drill", WITH_CAUSE, ids=lambda drill: drill.name)
def test_a_drill_refuses_what_every_other_has_left(drill: Drill) -> None:
    alike = next((group for group in ALIKE if drill.name in group), {drill.name})
    others = [(other.name, cause) for other in DRILLS if other.name not in alike for cause in causes(other.name)]
    assert len(others) > 5
    assert [(name, cause) for name, cause in others if accepts(drill, cause)] == []


CONTAINER = "drill-1 (node rank 1) closed its connection: its container ended by itself"
KILL = "rank 1 (node rank 1) was ended by SIGKILL"


@pytest.mark.parametrize(
    ("name", "kind", "reason", "fits"),
    [
        ("memory-exhausted", "worker", f"{KILL}: killed for memory: limit 2048 MiB, peak 2048 MiB", True),
        ("memory-exhausted", "worker", f"{KILL}: killed from outside, not for memory", False),
        ("memory-exhausted", "worker", f"{KILL}: a process of its pod was killed for memory", False),
        ("memory-exhausted", "container", f"{CONTAINER}; memory was at 99 % of 2048 MiB when last seen", True),
        ("memory-exhausted", "container", f"{CONTAINER}; memory was at 20 % of 2048 MiB when last seen", False),
        ("launcher-killed", "container", f"{CONTAINER}; memory was at 99 % of 2048 MiB when last seen", False),
        ("launcher-killed", "container", CONTAINER, True),
        ("torchrun-killed", "worker", f"{KILL}: killed from outside, not for memory", False),
        ("node-power-lost", "container", CONTAINER, False),
        ("node-away", "pod", "drill-1 (node rank 1) closed its connection", False),
        ("pod-0-force-deleted", "pod", "rank 0 was lost", True),
        ("pod-0-force-deleted", "pod", "drill-1 (node rank 1) closed its connection", False),
    ],
)
def test_words_that_are_nearly_right(name: str, kind: str, reason: str, fits: bool) -> None:
    """Known failure A22: a kill for memory is told apart from any other."""
    assert accepts(named(name), {"kind": kind, "reason": reason}) is fits
