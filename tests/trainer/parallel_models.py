"""What the tests of the parallel forms train: a tiny GPT, and the mesh of the ranks that a test has."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from rankzero.config import TrainConfig, parse
from rankzero.train.parallel import mesh as meshes
from tests.trainer.reporting import place

CONTEXT = 16
MODEL = {"width": 16, "heads": 4, "blocks": 3, "context": CONTEXT}


def prepared(rank: int, settings: dict[str, Any], per_node: int = 2) -> tuple[TrainConfig, DeviceMesh]:
    """The settings as the loader reads them, and their mesh of all ranks."""
    config = parse(TrainConfig, settings, "train")
    return config, meshes.build(config, place(rank, per_node))


def batch(step: int, size: int) -> tuple[Tensor, Tensor]:
    """A whole batch: (size, CONTEXT) bytes and those that follow, the same for each step in every run."""
    text = torch.randint(256, (size, CONTEXT + 1), generator=torch.Generator().manual_seed(step))
    return text[:, :-1], text[:, 1:]


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all bytes."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
