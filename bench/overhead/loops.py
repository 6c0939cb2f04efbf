"""One rank of the measurement, started by torchrun: rank 0 prints what each loop's steps took as JSON.

Three loops over the same model take turns of a few steps: a bare one, the same again, whose difference is what this
machine cannot tell apart, and the library's. Whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.gpt import gpt
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import build
from rankzero.train.parallel.step import Step
from rankzero.train.progress import Progress
from rankzero.train.stopping import StopRequest

CONTEXT = 128
STEPS = 4
"""Steps of a turn that count, after one in which a loop's data come back into the caches."""
LOG_EVERY = 10

Loop = Callable[[Tensor, Tensor], None]


def loss(logits: Tensor, following: Tensor) -> Tensor:
    """Mean over all bytes."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def bare(ranks: Ranks) -> Loop:
    """The loop of PyTorch's tutorials, which prints its loss now and then."""
    model = DistributedDataParallel(gpt(context=CONTEXT).to(ranks.device))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    number = 0

    def step(inputs: Tensor, targets: Tensor) -> None:
        nonlocal number
        number += 1
        found = loss(model(inputs), targets)
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        if number % LOG_EVERY == 0 and ranks.is_first:
            sys.stdout.write(f"step {number} loss {found.item():.4f}\n")

    return step


def with_library(config: TrainConfig, ranks: Ranks, checkpoints: Checkpoints) -> Loop:
    """The loop of examples/gpt.py with all that it has."""
    mesh = build(config, ranks)
    model = parallelize(gpt(context=CONTEXT), mesh, config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    trained = Step(model, optimizer, mesh, config, loss=loss)
    checkpoints.track(model=model, optimizer=optimizer)
    checkpoints.resume()
    stop = StopRequest(ranks)
    progress = Progress(config, ranks, total_steps=10**9, resumed_from=0)
    progress.watch(model, optimizer)
    number = 0

    def step(inputs: Tensor, targets: Tensor) -> None:
        nonlocal number
        number += 1
        trained.run(inputs, targets)
        done = trained.finish()
        stopping = stop.due(number)
        progress.step(
            number,
            epoch=0,
            loss=done.loss,
            learning_rate=done.learning_rate,
            samples=len(inputs),
            tokens=inputs.numel(),
            leaving=stopping,
        )
        checkpoints.due(number)

    return step


def turn(loop: Loop, batch: int) -> tuple[float, float]:
    """Seconds of wall and of this rank's processor time, per step."""
    first, *texts = torch.randint(256, (STEPS + 1, batch, CONTEXT + 1))
    loop(first[:, :-1], first[:, 1:])
    wall, processor = time.perf_counter(), time.process_time()
    for text in texts:
        loop(text[:, :-1], text[:, 1:])
    return (time.perf_counter() - wall) / STEPS, (time.process_time() - processor) / STEPS


def main() -> None:
    """``python -m bench.overhead.loops TURNS BATCH``, on every rank."""
    turns, batch = map(int, sys.argv[1:3])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        # As under the launcher, which reads the heartbeat and asks for a stop by a file.
        os.environ[contract.ENV_STATE_DIR] = os.environ[contract.ENV_ATTEMPT_DIR] = folder
        out, sys.stdout = sys.stdout, nowhere
        found = measure(turns, TrainConfig(backend="gloo", batch_size=batch, log_every_steps=LOG_EVERY), Path(folder))
    if found:
        out.write(json.dumps(found) + "\n")


def measure(turns: int, config: TrainConfig, folder: Path) -> dict[str, dict[str, list[float]]]:
    """What rank 0 has found: see :data:`bench.overhead.summary.Seconds`; nothing on the others."""
    with process_group(config) as ranks, Checkpoints(folder, config.checkpoint) as checkpoints:
        loops = {"bare": bare(ranks), "again": bare(ranks), "library": with_library(config, ranks, checkpoints)}
        names = list(loops)
        seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "processor": []} for name in names}
        for number in range(turns + 1):
            for name in names[number % 3 :] + names[: number % 3]:
                found = torch.tensor(turn(loops[name], config.batch_size), dtype=torch.float64)
                dist.all_reduce(found)
                if number:  # the first one warms up
                    for clock, value in zip(("wall", "processor"), found.tolist(), strict=True):
                        seconds[name][clock].append(value / ranks.world_size)
    return seconds if ranks.is_first else {}


if __name__ == "__main__":
    main()
