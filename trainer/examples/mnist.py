"""Handwritten digits on any number of nodes: a small CNN, replicated or sharded, exact resume.

    rankzero launch                          in a pod of the chart
    torchrun --nproc-per-node 2 mnist.py     anywhere else
Settings come from the `train:` part of the run's train.yaml ($RANKZERO_CONFIG) when there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import DataLoader, TensorDataset

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.heartbeat import Phase
from rankzero.train import entry, idx
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.evaluation import evaluate
from rankzero.train.parallel.mesh import build, data_ranks
from rankzero.train.parallel.step import Step
from rankzero.train.progress import Progress, phase, report_result
from rankzero.train.sampling import EpochSampler
from rankzero.train.schedule import scaled_learning_rate, schedule
from rankzero.train.stopping import StopRequest

DEFAULT_DATA = Path(__file__).parent / "data"
TEST_EVERY = 5
TEST_BATCH = 500


def digits_model() -> nn.Module:
    """Two convolutions and a classifier: (batch, 1, 28, 28) grey values in, (batch, 10) logits out."""
    first = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    hidden = [nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25)]
    return nn.Sequential(*first, *second, *hidden, nn.Linear(128, 10))


def load_digits(folder: Path) -> tuple[TensorDataset, TensorDataset]:
    """Training and test data: every fifth digit is for the test."""
    images, labels = idx.load_pair(folder / "mnist-10k-images-idx3-ubyte.gz", folder / "mnist-10k-labels-idx1-ubyte.gz")
    images, labels = images.float().div(255).sub(0.1307).div(0.3081).unsqueeze(1), labels.long()
    test = torch.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def accuracy(model: nn.Module, data: TensorDataset, mesh: DeviceMesh) -> float:
    """Share of right answers over ``data``, 0 to 1. Every rank calls it."""
    part, parts = data_ranks(mesh)
    images, labels = (torch.split(tensor[part::parts], TEST_BATCH) for tensor in data.tensors)

    def right(logits: Tensor, wanted: Tensor) -> Tensor:
        return (logits.argmax(1) == wanted).sum()

    return float(evaluate(model, mesh, zip(images, labels, strict=True), right)) / len(data)


def train(config: TrainConfig, ranks: Ranks, checkpoints: Checkpoints) -> None:
    """The whole run on one rank."""
    with phase(Phase.PREPARATION):
        training, test = load_digits(Path(config.data) if config.data else DEFAULT_DATA)
    mesh = build(config, ranks)
    sampler = EpochSampler(len(training), *data_ranks(mesh), config.seed)
    size = config.batch_size * config.accumulate
    # A generator of its own: each pass of the loader draws a seed, which must not shift dropout after a resume.
    loader = DataLoader(training, size, sampler=sampler, drop_last=True, generator=torch.Generator())
    total_steps = config.epochs * (steps_per_epoch := sampler.steps(size))

    model = parallelize(digits_model(), mesh, config)
    optimizer = torch.optim.SGD(model.parameters(), scaled_learning_rate(config, sampler.world_size), momentum=0.9)
    rates = schedule(optimizer, config, total_steps)
    trained = Step(model, optimizer, mesh, config, loss=F.cross_entropy, schedule=rates)
    checkpoints.track(model=model, optimizer=optimizer, schedule=rates, **trained.state)
    step = checkpoints.resume()
    stop = StopRequest(ranks)
    progress = Progress(
        config, ranks, total_steps=total_steps, resumed_from=step, saves_on_stop=True, data_ranks=sampler.world_size
    )
    progress.watch(model, optimizer)
    while step < total_steps:
        epoch, done = divmod(step, steps_per_epoch)
        sampler.start(epoch, consumed=done * size)
        for images, labels in progress.batches(loader):
            trained.run(images, labels)
            one = trained.finish()
            step += 1
            stopping = stop.due(step)
            progress.step(
                step, epoch=epoch, loss=one.loss, learning_rate=one.learning_rate, samples=len(images), leaving=stopping
            )
            if checkpoints.due(step) or stopping or step == total_steps:
                checkpoints.save(step, wait=stopping, final=step == total_steps)
            if stopping:  # a pod of the run is being stopped; the next attempt goes on from here
                sys.exit(contract.EXIT_REQUEUE)
    with phase(Phase.EVALUATION):
        share = accuracy(model, test, mesh)
    if ranks.is_first:
        print(f"test accuracy {share:.2%} on {len(test)} digits", flush=True)
        report_result(test_accuracy=share, steps=step)


def main() -> None:
    """Read the settings, join the group, train."""
    config = entry.train_config(TrainConfig(epochs=3, learning_rate=0.01, warmup_steps=50))
    with process_group(config) as ranks, Checkpoints.of_run(config) as checkpoints:
        train(config, ranks, checkpoints)


if __name__ == "__main__":
    entry.run(main)
