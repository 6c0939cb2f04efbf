"""Handwritten digits on any number of nodes: DDP, a small CNN, exact resume.

    rankzero launch                          in a pod of the chart
    torchrun --nproc-per-node 2 mnist.py     anywhere else

Settings come from the `train:` part of the run's train.yaml ($RANKZERO_CONFIG) when there is one.
"""

from __future__ import annotations

import gzip
import math
import os
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from rankzero import config as settings
from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import ConfigError, DataError
from rankzero.heartbeat import Phase
from rankzero.train import entry
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.progress import Progress, phase, report_result, state_dir
from rankzero.train.sampling import EpochSampler
from rankzero.train.schedule import scaled_learning_rate
from rankzero.train.stopping import StopRequest

DEFAULT_DATA = Path(__file__).parent / "data"
TEST_EVERY = 5
WARM_UP_STEPS = 50


class Digits(nn.Module):
    """Two convolutions and a classifier: 28 x 28 grey values in, ten logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 1, 28, 28) -> (batch, 10)."""
        logits: Tensor = self.classifier(self.features(images))
        return logits


def load_idx(path: Path) -> Tensor:
    """An IDX file (optionally gzipped) of bytes, not empty.

    Raises :class:`ConfigError` where there is none, which trying again cannot mend, and :class:`DataError` where it
    cannot be read or is damaged.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="set train.data to the folder") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}", hint="fetch or convert it again") from error
    dimensions = raw[3] if len(raw) > 3 and raw.startswith(b"\0\0\x08") else 0
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    values = bytearray(raw[4 + 4 * dimensions :])
    if not values or len(values) != math.prod(shape):
        raise DataError(f"{path} is not a whole IDX file of bytes", hint="fetch or convert it again")
    return torch.frombuffer(values, dtype=torch.uint8).view(shape)


def load_digits(folder: Path) -> tuple[TensorDataset, TensorDataset]:
    """Training and test data: every fifth digit is for the test."""
    images = load_idx(folder / "mnist-10k-images-idx3-ubyte.gz").float().div(255).sub(0.1307).div(0.3081).unsqueeze(1)
    labels = load_idx(folder / "mnist-10k-labels-idx1-ubyte.gz").long()
    if len(images) != len(labels):
        raise DataError(f"{folder} has {len(images)} images and {len(labels)} labels", hint="fetch or convert it again")
    test = torch.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def accuracy(model: nn.Module, data: TensorDataset, ranks: Ranks) -> float:
    """Share of right answers over ``data``, 0 to 1. Every rank calls it and judges its own part."""
    model.eval()
    images, labels = (tensor[ranks.rank :: ranks.world_size].to(ranks.device) for tensor in data.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    counts = torch.stack([right, torch.tensor(len(labels), device=ranks.device)])
    dist.all_reduce(counts)  # all ranks; two whole numbers: right answers, answers
    model.train()
    return float(counts[0] / counts[1])


def train(config: TrainConfig, ranks: Ranks, checkpoints: Checkpoints) -> None:
    """The whole run on one rank."""
    with phase(Phase.PREPARATION):
        training, test = load_digits(Path(config.data) if config.data else DEFAULT_DATA)
    sampler = EpochSampler(len(training), ranks.rank, ranks.world_size, config.seed)
    # A generator of its own: each pass of the loader draws a seed, which must not shift dropout after a resume.
    loader = DataLoader(training, config.batch_size, sampler=sampler, drop_last=True, generator=torch.Generator())
    steps_per_epoch = len(loader)
    if not steps_per_epoch:
        raise ConfigError(
            f"train.batchSize is {config.batch_size}, more than a rank's share of the data "
            f"({len(sampler)} of {len(training)} samples), so there is no step to make",
            hint=f"set train.batchSize to at most {len(sampler)}, or train on fewer ranks",
        )
    total_steps = config.epochs * steps_per_epoch

    torch.manual_seed(config.seed)  # the same start on every rank
    plain = Digits().to(ranks.device)
    optimizer = torch.optim.SGD(plain.parameters(), scaled_learning_rate(config, ranks.world_size), momentum=0.9)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM_UP_STEPS),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(total_steps - WARM_UP_STEPS, 1)),
        ],
        milestones=[WARM_UP_STEPS],
    )
    torch.manual_seed(config.seed + ranks.rank)  # dropout differs between ranks

    step = 0
    if (state := checkpoints.load_latest(ranks.device)) is not None:
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        step = state["step"]
        if ranks.is_first:
            print(f"resumed from step {step}", flush=True)
    model = DistributedDataParallel(plain, device_ids=[ranks.local_rank] if ranks.device.type == "cuda" else None)
    stop = StopRequest(ranks)
    progress = Progress(
        ranks.rank,
        total_steps=total_steps,
        resumed_from=step,
        log_every=config.log_every_steps,
        saves_on_stop=True,
    )

    while step < total_steps:
        epoch, done = divmod(step, steps_per_epoch)
        sampler.start(epoch, consumed=done * config.batch_size)
        for images, labels in progress.batches(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.to(ranks.device)), labels.to(ranks.device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            learning_rate = float(schedule.get_last_lr()[0])
            schedule.step()
            step += 1
            stopping = stop.due(step)
            progress.step(
                step,
                epoch=epoch,
                loss=loss.item(),
                learning_rate=learning_rate,
                samples=len(images),
                leaving=stopping,
            )
            if stopping or step % config.checkpoint.every_steps == 0 or step == total_steps:
                checkpoints.save(
                    step,
                    {
                        "model": plain.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "schedule": schedule.state_dict(),
                    },
                    final=step == total_steps,
                )
            if stopping:  # a pod of the run is being stopped; the next attempt goes on from here
                sys.exit(contract.EXIT_REQUEUE)

    with phase(Phase.EVALUATION):
        share = accuracy(plain, test, ranks)
    if ranks.is_first:
        print(f"test accuracy {share:.2%} on {len(test)} digits", flush=True)
        report_result(test_accuracy=share, steps=step)


def main() -> None:
    """Read the settings, join the group, train."""
    path = os.environ.get(contract.ENV_CONFIG)
    config = settings.load(path).train if path else TrainConfig(epochs=3, learning_rate=0.01)
    # Without a launcher there is no run to resume: checkpoints go where they are forgotten.
    with tempfile.TemporaryDirectory() as scratch, process_group(config) as ranks:
        train(config, ranks, Checkpoints(state_dir() or Path(scratch), keep=config.checkpoint.keep))


if __name__ == "__main__":
    entry.run(main)
