"""The GPT of gpt.py on text that `rankzero pack` has cut into shards: each piece once an epoch, whatever happens.

    rankzero pack text *.txt shards --length 128     once
    python packed.py                                 one process; $RANKZERO_CONFIG names a file with train.data
    torchrun --nproc-per-node 2 packed.py            anywhere else
    rankzero launch                                  in a pod of the chart, see experiments/packed.yaml

A run that is killed goes on after the last piece of its checkpoint, on as many ranks as there are then.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch

# The script's own folder is first on Python's path.
from gpt import loss  # type: ignore[import-not-found]
from torch import Tensor

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.heartbeat import Phase
from rankzero.train import entry
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.data.from_config import load_data, open_data
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.gpt import gpt, tensor_plan
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import build, data_ranks
from rankzero.train.parallel.step import Step
from rankzero.train.progress import Progress, phase, report_result
from rankzero.train.schedule import scaled_learning_rate, schedule
from rankzero.train.stopping import StopRequest


def inputs_and_targets(sample: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The bytes of a piece but for the last, and but for the first."""
    tokens = sample["tokens"].long()
    return tokens[:-1], tokens[1:]


def train(config: TrainConfig, ranks: Ranks, checkpoints: Checkpoints) -> None:
    """The whole run on one rank."""
    mesh = build(config, ranks)
    index, count = data_ranks(mesh)
    with phase(Phase.PREPARATION):
        dataset = open_data(config, inputs_and_targets)
        context = dataset.index.about["length"]
        data = load_data(config, dataset, index, count)
    total_steps = config.epochs * data.steps_per_epoch

    model = parallelize(gpt(context=context), mesh, config, plan=tensor_plan())
    optimizer = torch.optim.AdamW(model.parameters(), scaled_learning_rate(config, count))
    rates = schedule(optimizer, config, total_steps)
    trained = Step(model, optimizer, mesh, config, loss=loss, schedule=rates)
    checkpoints.track(model=model, optimizer=optimizer, schedule=rates, data=data, **trained.state)
    step = checkpoints.resume()
    total_steps = step + len(data) + (config.epochs - data.epoch - 1) * data.steps_per_epoch  # with the ranks of now
    rates.end_at(total_steps)
    stop = StopRequest(ranks)
    progress = Progress(config, ranks, total_steps=total_steps, resumed_from=step, saves_on_stop=True, data_ranks=count)
    progress.watch(model, optimizer)
    last = math.nan
    while data.epoch < config.epochs:
        epoch = data.epoch
        for text, following in progress.batches(data):
            trained.run(text, following)
            done = trained.finish()
            step += 1
            last, stopping = done.loss, stop.due(step)
            told = {"loss": last, "learning_rate": done.learning_rate, "gradient_norm": done.norm}
            progress.step(step, epoch=epoch, samples=len(text), tokens=text.numel(), leaving=stopping, **told)
            if checkpoints.due(step) or stopping:
                checkpoints.save(step, wait=stopping)
            if stopping:  # a pod of the run is being stopped; the next attempt goes on from here
                sys.exit(contract.EXIT_REQUEUE)
    checkpoints.save(step, final=True)
    if ranks.is_first:
        report_result(loss=last, steps=step)


def main() -> None:
    """Read the settings, join the group, train."""
    config = entry.train_config(TrainConfig(batch_size=16, clip_norm=1.0, warmup_steps=20))
    with process_group(config) as ranks, Checkpoints.of_run(config) as checkpoints:
        train(config, ranks, checkpoints)


if __name__ == "__main__":
    entry.run(main)
