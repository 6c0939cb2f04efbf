"""Pipeline parallelism: consecutive layers on different ranks, micro-batches that follow each other through them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.train.parallel.mesh import size

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def stage_of(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The layers of ``model`` that belong to this rank's stage, under the names that they have in ``model``.

    Raises :class:`ConfigError` for a model that is no ``nn.Sequential``, or has fewer layers than there are stages.
    """
    stages, stage = size(mesh, "pipeline"), mesh.get_local_rank("pipeline")
    if not isinstance(model, nn.Sequential):
        raise ConfigError(
            f"train.parallel.pipeline is {stages} and {type(model).__name__} is no torch.nn.Sequential",
            hint="allowed for this model: 1; or make it a Sequential of its layers, which can be cut between them",
        )
    layers = list(model.named_children())
    if len(layers) < stages:
        raise ConfigError(
            f"train.parallel.pipeline is {stages} and the model has {len(layers)} layers",
            hint=f"allowed for this model: 1 to {len(layers)}",
        )
    weights = [sum(parameter.numel() for parameter in layer.parameters()) for _, layer in layers]
    begin, end = cuts(weights, stages)[stage]
    return nn.Sequential(OrderedDict(layers[begin:end]))


def cuts(weights: Sequence[int], stages: int) -> list[tuple[int, int]]:
    """Consecutive, non-empty parts of the layers, (begin, end) each: the heaviest is as light as it can be.

    ``weights`` are the layers' parameters, ``stages`` at most their number.
    """
    low, high = max(weights), sum(weights)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_filled(weights, stages, middle)) <= stages else (middle + 1, high)
    return _filled(weights, stages, low)


def _filled(weights: Sequence[int], stages: int, limit: int) -> list[tuple[int, int]]:
    """Parts that are as heavy as ``limit`` allows, cut earlier where each of the ``stages`` would not get a layer."""
    parts: list[tuple[int, int]] = []
    begin = weight = 0
    for index, layer in enumerate(weights):
        left = len(weights) - index
        if index > begin and (weight + layer > limit or left < stages - len(parts)):
            parts.append((begin, index))
            begin, weight = index, 0
        weight += layer
    return [*parts, (begin, len(weights))]


class Pipeline:
    """Forward and backward passes of all micro-batches of a step, over all stages."""

    def __init__(
        self, stage: nn.Module, mesh: DeviceMesh, config: TrainConfig, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        """``stage`` is what :func:`parallelize` returned. Raises :class:`ConfigError` for too few micro-batches."""
        stages, self._index = size(mesh, "pipeline"), mesh.get_local_rank("pipeline")
        if config.accumulate < stages:
            raise ConfigError(
                f"train.accumulate is {config.accumulate} and train.parallel.pipeline {stages}: most stages would wait",
                hint=f"allowed for train.accumulate: {stages} or more; four times as many keep the stages busy",
            )
        self._is_last = self._index == stages - 1
        self._count, self._samples = config.accumulate, 0
        self._group = mesh.get_group("pipeline")
        self._device = next(stage.parameters()).device
        self._schedule = SCHEDULES[config.parallel.schedule](
            PipelineStage(stage, self._index, stages, self._device, group=self._group), config.accumulate, loss_fn=loss
        )

    def run(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Leave the gradients of the mean loss in the stage; returns that loss on every stage. Every rank calls it.

        ``inputs`` and ``targets`` are the whole step's: (micro-batches * their size, ...). Raises :class:`ConfigError`
        where they are not as many in each step: stages agree on shapes once.
        """
        self._samples = self._samples or len(inputs)
        if len(inputs) != self._samples or len(inputs) % self._count:
            raise ConfigError(
                f"a step of {len(inputs)} samples for a pipeline of {self._count} micro-batches, whose first had "
                f"{self._samples}",
                hint="leave out what fills no whole step (train.dataLoader.dropLast: true), and give each step "
                "train.batchSize * train.accumulate samples",
            )
        losses: list[Tensor] = []
        self._schedule.step(
            *([inputs] if self._index == 0 else []),
            target=targets if self._is_last else None,
            losses=losses,
            return_outputs=False,
        )
        loss = torch.zeros((), device=self._device, dtype=torch.float64)
        if self._is_last:
            loss += torch.stack(losses).detach().mean()
        dist.all_reduce(loss, group=self._group)  # one number, which only the last stage knows
        return loss
