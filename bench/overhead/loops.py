"""One rank of the measurement, started by torchrun: rank 0 prints the seconds of each step of both loops as JSON.

The loops take turns step by step, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

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
WARM_UP = 10


def loss(logits: Tensor, following: Tensor) -> Tensor:
    """Mean over all bytes."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def bare(ranks: Ranks) -> Callable[[Tensor, Tensor], None]:
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
        if number % 10 == 0 and ranks.is_first:
            sys.stderr.write(f"step {number} loss {found.item():.4f}\n")

    return step


def with_library(config: TrainConfig, ranks: Ranks, checkpoints: Checkpoints) -> Callable[[Tensor, Tensor], None]:
    """The loop of examples/gpt.py with all that it has."""
    mesh = build(config, ranks)
    model = parallelize(gpt(context=CONTEXT), mesh, config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    trained = Step(model, optimizer, mesh, config, loss=loss)
    checkpoints.track(model=model, optimizer=optimizer)
    checkpoints.resume()
    stop = StopRequest(ranks)
    progress = Progress(ranks.rank, total_steps=10**9, resumed_from=0, log_every=10, settings=config.progress)
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


def main() -> None:
    """``python -m bench.overhead.loops STEPS BATCH``, on every rank."""
    steps, batch = map(int, sys.argv[1:3])
    config = TrainConfig(backend="gloo", batch_size=batch)
    seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "processor": []} for name in ("bare", "library")}
    out, sys.stdout = sys.stdout, sys.stderr
    with (
        tempfile.TemporaryDirectory() as folder,
        process_group(config) as ranks,
        Checkpoints(Path(folder), config.checkpoint) as checkpoints,
    ):
        loops = {"bare": bare(ranks), "library": with_library(config, ranks, checkpoints)}
        for number in range(steps + WARM_UP):
            text = torch.randint(256, (batch, CONTEXT + 1))
            for name in sorted(loops, reverse=bool(number % 2)):
                wall, processor = time.perf_counter(), time.process_time()
                loops[name](text[:, :-1], text[:, 1:])
                if number >= WARM_UP:
                    seconds[name]["wall"].append(time.perf_counter() - wall)
                    seconds[name]["processor"].append(time.process_time() - processor)
        if ranks.is_first:
            out.write(json.dumps(seconds) + "\n")


if __name__ == "__main__":
    main()
