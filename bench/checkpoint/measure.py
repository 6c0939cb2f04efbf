"""One process that trains a model of a given size and saves it in one of the ways.

    python -m bench.checkpoint.measure METHOD GIGABYTES SAVES FOLDER

Prints what it found as JSON. The optimizer's step is timed, too: what makes it wait holds the loop up as a save does.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.checkpoint.methods import METHODS

WIDTH = 1024
BATCH = 64
STEPS_BETWEEN = 5
"""Steps from one save to the next: time enough to write it."""


def train(method: str, gigabytes: float, saves: int, folder: Path) -> dict[str, Any]:
    """Train between saves; the first one, which allocates memory, is told apart from the others."""
    parameters = gigabytes * 1e9 / 12  # 4 bytes for a weight, 8 for AdamW's two averages
    blocks = max(1, round(parameters / (8 * WIDTH * WIDTH)))
    layers = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(blocks)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    inputs = torch.randn(BATCH, WIDTH)

    def step() -> tuple[float, float]:
        """Seconds of a whole step, and of its optimizer's part."""
        began = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        computed = time.perf_counter()
        optimizer.step()
        ended = time.perf_counter()
        return ended - began, ended - computed

    for _ in range(2):
        step()
    plain = [step() for _ in range(STEPS_BETWEEN)]
    usual, usual_update = median(whole for whole, _ in plain), median(update for _, update in plain)
    before = memory()
    saver = METHODS[method](folder, model, optimizer)
    blocked, extra = [], []
    for number in range(1, saves + 1):
        began = time.perf_counter()
        saver.save(number)
        called = time.perf_counter() - began
        steps = [step() for _ in range(STEPS_BETWEEN)]
        blocked.append(called + max(0.0, steps[0][1] - usual_update))
        extra.append(called + sum(whole for whole, _ in steps) - STEPS_BETWEEN * usual)
    saver.finish()
    state = sum(parameter.nbytes for parameter in model.parameters()) * 3
    return {
        "state_gb": round(state / 1e9, 2),
        "tensors": 4 * len(list(model.parameters())),
        "step_s": round(usual, 3),
        "first_blocked_s": round(blocked[0], 3),
        "blocked_s": round(median(blocked[1:]), 4),
        "extra_s": round(median(extra[1:]), 3),
        "memory_gb": round((memory() - before) / 1e9, 2),
        "copies_per_state": round(saver.copies / state, 2),
    }


def memory() -> int:
    """Most bytes that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure, print."""
    method, gigabytes, saves, folder = sys.argv[1:]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    sys.stdout.write(json.dumps(train(method, float(gigabytes), int(saves), Path(folder))) + "\n")


if __name__ == "__main__":
    main()
