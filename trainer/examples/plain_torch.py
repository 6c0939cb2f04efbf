"""A training as people have it: PyTorch and its environment variables, nothing of rankzero.

    python plain_torch.py                              one process
    torchrun --nproc-per-node 2 plain_torch.py         and as often as one likes
    rankzero launch                                    the same file in pods of the chart

It keeps no checkpoint. docs/own-script.md shows the lines that make it go on where it was.
"""

import argparse
import gzip
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description="Handwritten digits with plain PyTorch.")
parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64, help="of one process")
parser.add_argument("--learning-rate", type=float, default=0.05)


def load(folder: Path) -> TensorDataset:
    """The digits as (1, 28, 28) grey values from 0 to 1, and what they are."""
    images, labels = (
        torch.frombuffer(bytearray(gzip.decompress((folder / f"mnist-10k-{name}.gz").read_bytes())), dtype=torch.uint8)
        for name in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    return TensorDataset(images[16:].view(-1, 1, 28, 28) / 255, labels[8:].long())  # without the files' headers


def network() -> nn.Module:
    """(batch, 1, 28, 28) -> (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def train(options: argparse.Namespace, device: torch.device) -> None:
    """All epochs; every process trains on its own part of each."""
    torch.manual_seed(0)
    digits = load(options.data)
    sampler: DistributedSampler[int] = DistributedSampler(digits)
    loader = DataLoader(digits, options.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, momentum=0.9)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        right = 0
        for images, labels in loader:
            logits = model(images.to(device))
            loss = F.cross_entropy(logits, labels.to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            right += int((logits.argmax(1) == labels.to(device)).sum())
        if dist.get_rank() == 0:
            share = right / (len(loader) * options.batch_size)
            print(f"epoch {epoch}  loss {loss.item():.4f}  right while training {share:.2%}", flush=True)


def main() -> None:
    """Join the group that the environment names, or be one alone."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, value)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    train(parser.parse_args(), device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
