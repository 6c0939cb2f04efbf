"""A small GPT that learns to write Python, byte by byte, in any form of parallelism that `train.parallel` names.

    python gpt.py                            one process
    torchrun --nproc-per-node 2 gpt.py       anywhere else
    rankzero launch                          in a pod of the chart, see experiments/gpt.yaml

The text is the standard library's own source, or the files below `train.data`.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.heartbeat import Phase
from rankzero.train import entry
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.gpt import gpt, tensor_plan
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import build, data_ranks
from rankzero.train.parallel.step import Step
from rankzero.train.progress import Progress, phase, report_result
from rankzero.train.schedule import scaled_learning_rate, schedule
from rankzero.train.stopping import StopRequest

CONTEXT = 128


def text_below(path: str) -> Tensor:
    """The bytes of all files below ``path``; where it is empty, the modules of the standard library."""
    files = sorted(Path(path).rglob("*") if path else Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"".join(file.read_bytes() for file in files if file.is_file())
    if len(text) <= CONTEXT:
        raise ConfigError(
            f"train.data is {path!r}, with {len(text)} bytes of text", hint="name a folder with text files"
        )
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def windows(text: Tensor, step: int, seed: int, size: int, part: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """``size`` pieces of the text, (size, CONTEXT) each, and the bytes that follow: this rank's part of a step's.

    They are drawn from seed and step alone, so that a resumed run goes on with what comes next.
    """
    index, count = part
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    begins = torch.randint(len(text) - CONTEXT, (count, size), generator=generator)[index]
    pieces = text[begins[:, None] + torch.arange(CONTEXT + 1)].long()
    return pieces[:, :-1], pieces[:, 1:]


def loss(logits: Tensor, following: Tensor) -> Tensor:
    """Mean over all bytes, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def train(config: TrainConfig, ranks: Ranks, checkpoints: Checkpoints, total_steps: int) -> None:
    """The whole run on one rank."""
    with phase(Phase.PREPARATION):
        text = text_below(config.data)
    mesh = build(config, ranks)
    part, size = data_ranks(mesh), config.batch_size * config.accumulate
    model = parallelize(gpt(context=CONTEXT), mesh, config, plan=tensor_plan())
    optimizer = torch.optim.AdamW(model.parameters(), scaled_learning_rate(config, part[1]))
    rates = schedule(optimizer, config, total_steps)
    step = Step(model, optimizer, mesh, config, loss=loss, schedule=rates)
    checkpoints.track(model=model, optimizer=optimizer, schedule=rates, **step.state)
    number = checkpoints.resume()
    stop = StopRequest(ranks)
    progress = Progress(
        config, ranks, total_steps=total_steps, resumed_from=number, saves_on_stop=True, data_ranks=part[1]
    )
    progress.watch(model, optimizer)
    last = float("nan")
    while number < total_steps:
        number += 1
        step.run(*windows(text, number, config.seed, size, part))
        done = step.finish()
        last, stopping = done.loss, stop.due(number)
        told = {"loss": last, "learning_rate": done.learning_rate, "gradient_norm": done.norm}
        progress.step(number, epoch=0, samples=size, tokens=size * CONTEXT, leaving=stopping, **told)
        if checkpoints.due(number) or stopping or number == total_steps:
            checkpoints.save(number, wait=stopping, final=number == total_steps)
        if stopping:  # a pod of the run is being stopped; the next attempt goes on from here
            sys.exit(contract.EXIT_REQUEUE)
    if ranks.is_first:
        report_result(loss=last, steps=number)


def main() -> None:
    """Read the settings, join the group, train."""
    parser = argparse.ArgumentParser(description="A small GPT that learns to write Python.")
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps in all")
    steps = parser.parse_args().steps
    config = entry.train_config(TrainConfig(batch_size=16, clip_norm=1.0, warmup_steps=20, log_every_steps=10))
    with process_group(config) as ranks, Checkpoints.of_run(config) as checkpoints:
        train(config, ranks, checkpoints, steps)


if __name__ == "__main__":
    entry.run(main)
