"""Results of drills as JSON: what was seen with which image, when and where. One file for the present machine
(``build/``), one that the repository keeps (``bench/results/``)."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from rankzero.files import read_json
from scripts.cache import REPO
from scripts.drill.ground import Ground
from scripts.drill.judge import Verdict
from scripts.drill.plan import Drill

LATEST = REPO / "build/drills/results.json"
KEPT = REPO / "bench/results/drills.json"


def add(path: Path, drill: Drill, verdict: Verdict, ground: Ground) -> None:
    """Put one drill's result in the place of its earlier one."""
    document: dict[str, Any] = read_json(path, damaged_is_absent=True) or {"drills": {}}
    document["machine"] = machine(ground)
    document["drills"][drill.name] = {
        "passed": not verdict.shortfalls,
        "seconds": verdict.seconds,
        "limit": drill.within,
        "cause": list(verdict.causes),
        "steps_repeated": verdict.steps_repeated,
        "notes": list(verdict.shortfalls),
        "image": ground.image.rpartition("/")[2],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    document["targets"] = {
        name: {"value": one["seconds"], "target": one["limit"], "met": one["passed"]}
        for name, one in document["drills"].items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def machine(ground: Ground) -> dict[str, Any]:
    """The machine that drills are run from; the local cluster's nodes are containers on it."""
    return {
        "cluster": "lab" if ground.is_lab else "existing",
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }
