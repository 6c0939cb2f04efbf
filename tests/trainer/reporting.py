"""What a rank of a test reports with."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from rankzero.config import ProgressConfig, TrainConfig
from rankzero.train.distributed import Ranks
from rankzero.train.progress import Progress


def place(rank: int, per_node: int = 1) -> Ranks:
    """The rank's place in the world of the group that there is; alone where there is none."""
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    store = dist.HashStore()  # type: ignore[attr-defined]
    return Ranks(rank, rank, world_size, torch.device("cpu"), store, per_node)


def progress(rank: int = 0, *, log_every: int = 1, settings: ProgressConfig | None = None, **more: Any) -> Progress:
    """That of a run which has just begun; ``more`` is what :class:`Progress` takes by name."""
    config = TrainConfig(log_every_steps=log_every, progress=settings or ProgressConfig())
    return Progress(config, place(rank), **{"resumed_from": 0, **more})
