"""Results of drills as JSON: the latest of this working copy, and those that the repository keeps for the guide."""

from __future__ import annotations

from typing import Any

from bench import result_file
from rankzero.files import read_json, write_json
from scripts.cache import REPO
from scripts.drill.catalogue import DRILLS
from scripts.drill.ground import STRATEGIES, Ground
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


def name_of(drill: Drill, strategy: str) -> str:
    """What a drill's result is called: with another strategy than the first, that is said too."""
    return drill.name if strategy == STRATEGIES[0] else f"{drill.name} ({strategy})"


def _with(document: dict[str, Any] | None, drill: Drill, verdict: Verdict, ground: Ground) -> dict[str, Any]:
    name = name_of(drill, ground.strategy)
    drills = {**(document or {}).get("drills", {}), name: _entry(drill, verdict, ground)}
    order = [name_of(one, strategy) for strategy in STRATEGIES for one in DRILLS]
    known = {name: drills[name] for name in order if name in drills}
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
        "strategy": ground.strategy,
        "image": ground.image.rpartition("/")[2],
        "cluster": "lab" if ground.is_lab else "existing",
        "machine": result_file.machine(),
    }


def _target(entry: dict[str, Any]) -> dict[str, Any]:
    """A drill that fell short has met nothing, however quick it was."""
    target = result_file.at_most(entry["seconds"], entry["target"])
    return {**target, "met": entry["passed"] and target["met"]}
