"""`python -m bench.checkpoint`: how long a save holds a training up, beside what torch offers for it.

Writes bench/results/checkpoint.json. Each way has a process of its own; they take turns, and medians count. Give it a
quiet machine, and twice the memory of the largest state and its gradients.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import result_file
from bench.checkpoint.methods import METHODS
from rankzero.config import CheckpointConfig
from scripts.cache import REPO

SAVES = 4
SHARE_OF_SYNCHRONOUS, SHARE_OF_TIME = 1 / 20, 0.01


def main() -> int:
    """Returns 0 where every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint", description=__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 4.0], help="state to save (default: 1 4)")
    parser.add_argument("--folder", type=Path, help="on the volume to write to; a temporary one if left out")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    before = result_file.read("checkpoint") or {}
    sizes: dict[str, Any] = before.get("sizes", {})
    for gigabytes in options.gigabytes:
        found = {}
        for method in METHODS:
            found[method] = measured(method, gigabytes, options.folder)
            console.print(f"{gigabytes:g} GB, {method}: {found[method]}")
        load = round(os.getloadavg()[0], 1)  # above the number of cores others were at work, too
        sizes[f"{gigabytes:g} GB"] = {"machine": result_file.machine(), "load_average": load, "methods": found}
    document = {"machine": result_file.machine(), "sizes": sizes, "targets": targets(sizes)}
    console.print(f"written: {result_file.write('checkpoint', document)}")
    for name, target in document["targets"].items():
        console.print(f"{name}: {target['value']}, target {target['target']}: {'met' if target['met'] else 'missed'}")
    return 0 if all(target["met"] for target in document["targets"].values()) else 1


def measured(method: str, gigabytes: float, folder: Path | None) -> dict[str, Any]:
    """What one process found."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, "-m", "bench.checkpoint.measure", method, str(gigabytes), str(SAVES)]
        done = subprocess.run([*command, f"{place}/state"], cwd=REPO, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def targets(sizes: dict[str, Any]) -> dict[str, Any]:
    """Of each size: the blocked time beside that of the synchronous way, and the whole cost at the default interval."""
    found = {}
    for size, one in sizes.items():
        ours, plain = one["methods"]["rankzero"], one["methods"]["dcp.save"]
        interval = CheckpointConfig().every_steps * ours["step_s"]
        blocked = ours["blocked_s"] / plain["blocked_s"]
        cost = round(ours["extra_s"] / interval, 4) if ours["extra_s"] > 0 else None  # the noise was greater
        name = size.replace(" ", "_").lower()
        found[f"blocked_share_of_dcp_save_{name}"] = result_file.at_most(round(blocked, 4), SHARE_OF_SYNCHRONOUS)
        found[f"cost_at_default_interval_{name}"] = result_file.at_most(cost, SHARE_OF_TIME)
    return found


if __name__ == "__main__":
    sys.exit(main())
