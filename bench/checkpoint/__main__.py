"""`python -m bench.checkpoint`: how long a save holds a training up, beside what torch offers for it.

Writes bench/results/checkpoint.json; takes about 8 minutes. Give it a quiet machine with 18 GB of free memory and 25 GB
on the volume.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from bench import result_file
from rankzero.config import CheckpointConfig
from scripts.cache import REPO


class Case(NamedTuple):
    """What is trained: a transformer with so much state, and the tokens of one step, which decide how long it takes."""

    gigabytes: float
    tokens: int
    rounds: int


CASES = {
    "1 GB": Case(1, 256, 5),
    "4 GB": Case(4, 256, 3),
    "1 GB, short steps": Case(1, 32, 4),
}
"""256 tokens are few: most trainings give each rank thousands at a time. 32, too few to train with, are a hard case."""
SHARE_OF_SYNCHRONOUS, SHARE_OF_TIME = 1 / 20, 0.01


def main() -> int:
    """Returns 0 where every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint", description=__doc__)
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), help="all, if left out")
    parser.add_argument("--folder", type=Path, help="on the volume to write to; a temporary one if left out")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    before = result_file.read("checkpoint") or {}
    cases = {name: case for name, case in before.get("cases", {}).items() if name in CASES}
    for name in options.case:
        found = measured(CASES[name], options.folder, console)
        load = round(os.getloadavg()[0], 1)  # far above 2 others were at work, too
        cases[name] = {"machine": result_file.machine(), "load_average": load, **found}
    document = {"machine": result_file.machine(), "cases": cases, "targets": targets(cases)}
    console.print(f"written: {result_file.write('checkpoint', document)}")
    for name, target in document["targets"].items():
        console.print(f"{name}: {target['value']}, target {target['target']}: {'met' if target['met'] else 'missed'}")
    return 0 if all(target["met"] for target in document["targets"].values()) else 1


def measured(case: Case, folder: Path | None, console: Console) -> dict[str, Any]:
    """What one process found."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, "-m", "bench.checkpoint.measure", *map(str, case), f"{place}/state"]
        with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                blocked = {name: one["blocked_s"] for name, one in found["methods"].items()}
                console.print(f"{found['state_gb']} GB, step {found['step_s']} s, blocked {blocked}")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return found


def targets(cases: dict[str, Any]) -> dict[str, Any]:
    """Of each case: the blocked time beside that of the synchronous way, and the whole cost at the default interval."""
    found = {}
    for name, case in cases.items():
        ours, plain = case["methods"]["rankzero"], case["methods"]["dcp.save"]
        share = round(ours["blocked_s"] / plain["blocked_s"], 4)
        cost = round(max(0.0, ours["extra_s"]) / (CheckpointConfig().every_steps * case["step_s"]), 4)
        found[f"{name}: blocked, share of dcp.save"] = result_file.at_most(share, SHARE_OF_SYNCHRONOUS)
        found[f"{name}: whole cost at the default interval"] = result_file.at_most(cost, SHARE_OF_TIME)
    return found


if __name__ == "__main__":
    sys.exit(main())
