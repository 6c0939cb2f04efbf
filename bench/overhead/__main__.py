"""`python -m bench.overhead`: what the library costs a training loop, beside a bare DDP loop on the CPU.

Writes bench/results/overhead.json, in about three minutes. Give it a quiet machine with two free cores; the control,
a second bare loop, tells how much of a difference it cannot see.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from typing import Any

import torch
from rich.console import Console

from bench import result_file
from bench.overhead import loops, summary
from scripts.cache import REPO
from scripts.entry import guarded

REPETITIONS = 3
TURNS = {1: 60}
"""Turns a run, by the samples of a step: 128 bytes, so that a step takes a few tens of milliseconds on a free core."""


def main() -> int:
    """Returns 0 where every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"of every case; {REPETITIONS}")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    runs: dict[str, list[Any]] = {}
    for _ in range(options.repetitions):
        for processes in (1, 2):
            for batch, turns in TURNS.items():
                case = f"{processes} x {batch}"
                runs.setdefault(case, []).append(measure(processes, batch, turns))
                console.print(f"{case}: {summary.of_case(runs[case][-1:])}")
    document = {
        "machine": {
            **result_file.machine(),
            "load_average": round(os.getloadavg()[1], 1),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "settings": {
            "model": "the bundled GPT: 4 blocks of width 128, 128 bytes a sample; AdamW, gloo, one thread a rank",
            "turns_by_batch": TURNS,
            "steps_of_a_turn": loops.STEPS,
            "repetitions": options.repetitions,
            "control": "a second bare loop in the same processes",
            "bare": "DistributedDataParallel, loss read every 10 steps",
            "library": "parallelize, Step (which checks that gradients are finite), Progress with watch, StopRequest, "
            "Checkpoints.due, with the folders that a launcher gives",
        },
        **summary.document(runs),
    }
    console.print(f"written: {result_file.write('overhead', document)}")
    for name, target in document["targets"].items():
        verdict = "met" if target["met"] else "missed"
        console.print(f"{name}: {target['value']:.4f}, target {target['target']}: {verdict}")
    return 0 if all(target["met"] for target in document["targets"].values()) else 1


def measure(processes: int, batch: int, turns: int) -> summary.Seconds:
    """One run in processes of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*command, "-m", "bench.overhead.loops", str(turns), str(batch)],
        cwd=REPO,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{REPO / 'trainer'}:{REPO}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds: summary.Seconds = json.loads(done.stdout.splitlines()[-1])
    return seconds


if __name__ == "__main__":
    sys.exit(guarded(main))
