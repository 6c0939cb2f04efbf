"""Results of drills as JSON: the latest of this working copy, and those that the repository keeps for the guide."""

from __future__ import annotations

from typing import Any

from bench import result_file
from rankzero.files import read_json, write_json
from scripts.cache import REPO
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
    machine = result_file.machine()
    drills = {
        **(document or {}).get("drills", {}),
        drill.name: {
            "passed": not verdict.shortfalls,
            "seconds": verdict.seconds,
            "limit": drill.within,
            "cause": list(verdict.causes),
            "steps_repeated": verdict.steps_repeated,
            "notes": list(verdict.shortfalls),
            "image": ground.image.rpartition("/")[2],
            "measured": machine["measured"],
        },
    }
    return {
        "machine": machine,
        "cluster": "lab" if ground.is_lab else "existing",
        "drills": drills,
        "targets": {name: result_file.at_most(one["seconds"], one["limit"]) for name, one in drills.items()},
    }
