"""Results of drills as JSON: the latest of this working copy, and those that the repository keeps for the guide."""

from __future__ import annotations

from typing import Any

from bench import result_file
from rankzero.files import read_json, write_json
from scripts.cache import REPO
from scripts.drill.catalogue import DRILLS
from scripts.drill.ground import Ground
from scripts.drill.judge import Verdict
from scripts.drill.plan import Drill

NAME = "drills"
LATEST = REPO / "build/drills/results.json"


def add(drill: Drill, verdict: Verdict, ground: Ground, *, keep: bool) -> None:
    """Put one drill's result in the place of its earlier one; with ``keep`` also in ``bench/results``."""
    LATEST.parent.mkdir(parents=True, exist_ok=True)
    write_json(LATEST, _with(read_json(LATEST), drill, verdict, ground))
    if keep:
        result_file.write(NAME, _with(result_file.read(NAME), drill, verdict, ground))


def _with(document: dict[str, Any] | None, drill: Drill, verdict: Verdict, ground: Ground) -> dict[str, Any]:
    drills = {**(document or {}).get("drills", {}), drill.name: _entry(drill, verdict, ground)}
    known = {name: drills[name] for name in (one.name for one in DRILLS) if name in drills}
    return {
        "drills": known,
        "targets": {name: _target(one) for name, one in known.items() if one.get("target") is not None},
    }


def _entry(drill: Drill, verdict: Verdict, ground: Ground) -> dict[str, Any]:
    return {
        "passed": not verdict.shortfalls,
        "seconds": verdict.seconds,
        "since_struck": verdict.since_struck,
        "limit": drill.within,
        "target": drill.target,
        "cause": list(verdict.causes),
        "pods": {str(rank): fate for rank, fate in verdict.pods.items()},
        "steps_repeated": verdict.steps_repeated,
        "notes": list(verdict.shortfalls),
        "image": ground.image.rpartition("/")[2],
        "cluster": "lab" if ground.is_lab else "existing",
        "machine": result_file.machine(),
    }


def _target(entry: dict[str, Any]) -> dict[str, Any]:
    """A drill that fell short has met nothing, however quick it was."""
    target = result_file.at_most(entry["seconds"], entry["target"])
    return {**target, "met": entry["passed"] and target["met"]}
