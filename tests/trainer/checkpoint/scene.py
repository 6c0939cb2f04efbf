"""A model of one weight, which tells the step that it was saved after, and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankzero.config import CheckpointConfig, ResumeConfig
from rankzero.train.checkpoint import Checkpoints

DATA_FILE, COMMON_FILE, METADATA_FILE = "__0_0.distcp", "state.pt", ".metadata"
"""What a checkpoint of one rank consists of, beside its manifest."""


class Weight(nn.Module):
    """``size`` numbers, all the same."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    @property
    def value(self) -> float:
        """The number."""
        return self.weight[0].item()

    @value.setter
    def value(self, number: float) -> None:
        self.weight.data.fill_(number)


def tracked(
    folder: Path, size: int = 4, resume: ResumeConfig | None = None, **settings: Any
) -> tuple[Checkpoints, Weight]:
    """Checkpoints of a model, written before save() returns unless ``settings`` say otherwise."""
    checkpoints = Checkpoints(folder, CheckpointConfig(**{"asynchronous": False, **settings}), resume)
    model = Weight(size)
    checkpoints.track(model=model)
    return checkpoints, model


def save_steps(folder: Path, *steps: int, **settings: Any) -> Checkpoints:
    """Save after each of these steps."""
    checkpoints, model = tracked(folder, **settings)
    for step in steps:
        model.value = step
        checkpoints.save(step)
    checkpoints.close()
    return checkpoints


def resumed(folder: Path, **settings: Any) -> tuple[int, float]:
    """The step that a new process goes on from, and the number in its model."""
    checkpoints, model = tracked(folder, **settings)
    return checkpoints.resume(), model.value


def names(checkpoints: Checkpoints) -> list[str]:
    """Everything in the folder, unfinished work included."""
    return sorted(path.name for path in checkpoints.layout.folder.iterdir())
