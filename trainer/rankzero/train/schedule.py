"""The learning rate: scaled with the batch, warmed up, let down."""

from __future__ import annotations

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from rankzero.config import TrainConfig


def scaled_learning_rate(config: TrainConfig, data_ranks: int) -> float:
    """The learning rate for the batch of one step: linear (Goyal et al. 2017), square root, or as given.

    ``data_ranks`` is the number of ranks that read different data.
    """
    batches = data_ranks * config.accumulate
    factor = {"linear": float(batches), "sqrt": batches**0.5, "none": 1.0}[config.lr_scaling]
    return float(config.learning_rate * factor)


class Schedule(LambdaLR):
    """Its state is the step alone: the rate is the settings', as they are now.

    What LambdaLR keeps beside it, the rate at its height, would outlive a changed ``train.learningRate`` and the
    scaling for another number of ranks, and nobody would be told.
    """

    def __init__(self, optimizer: Optimizer, config: TrainConfig, total_steps: int) -> None:
        self._total_steps = total_steps
        super().__init__(optimizer, lambda step: factor(config, step, self._total_steps))

    def end_at(self, total_steps: int) -> None:
        """After a resume on another number of ranks, which makes more or fewer steps of what is left of the data."""
        self._total_steps = total_steps
        self.load_state_dict(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there. The optimizer's own state, which holds the rate of then, is loaded before."""
        self.last_epoch = state_dict["last_epoch"]
        for group, base, rate in zip(self.optimizer.param_groups, self.base_lrs, self.lr_lambdas, strict=True):
            group["initial_lr"], group["lr"] = base, base * rate(self.last_epoch)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def schedule(optimizer: Optimizer, config: TrainConfig, total_steps: int) -> Schedule:
    """To be stepped with the optimizer: ``warmupSteps`` upwards in a line, then ``lrDecay`` until ``total_steps``."""
    return Schedule(optimizer, config, total_steps)


def factor(config: TrainConfig, step: int, total_steps: int) -> float:
    """What the learning rate is multiplied with in ``step`` (from 0): above 0, at most 1.

    The warm-up of n steps begins with 1 / (n + 1), so that no step is made with 0.
    """
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    if config.lr_decay == "none":
        return 1.0
    after = min((step - config.warmup_steps) / max(total_steps - config.warmup_steps, 1), 1.0)
    return (1 + math.cos(math.pi * after)) / 2
