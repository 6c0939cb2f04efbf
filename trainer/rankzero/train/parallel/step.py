"""One optimizer step of many micro-batches, in every form of parallelism alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankzero.config import TrainConfig
from rankzero.errors import DivergedError
from rankzero.train.distributed import set_timeout, step_timeout
from rankzero.train.parallel.mesh import groups, size
from rankzero.train.parallel.norm import gradient_norm, gradients, scale
from rankzero.train.parallel.pipeline import Pipeline
from rankzero.train.parallel.precision import scaler_for

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> their mean loss, a number."""
CLIP_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_, so that a run of one process gives the same."""
LEAST_SCALE = 1.0
"""fp16 makes gradients overflow now and then until the loss scale fits; below this the scale is not the reason."""


@dataclass(frozen=True)
class Finished:
    """What a step came to."""

    loss: float
    """Mean over this rank's samples, before the step."""
    norm: float
    """Of the whole gradient, over all ranks, before clipping."""
    learning_rate: float
    """That the step was made with, of the first parameter group."""
    skipped: bool
    """The weights are as before, because the gradient was not finite."""


class Step:
    """Gradients of ``accumulate`` micro-batches, synchronised once, clipped, and applied.

    A loop of its own writes ``with step.micro(): step.backward(loss)`` for each micro-batch; :meth:`run` does it for
    a whole batch, and works with pipelines too. Then :meth:`finish`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        mesh: DeviceMesh,
        config: TrainConfig,
        *,
        loss: Loss | None = None,
        schedule: LRScheduler | None = None,
    ) -> None:
        """``model`` is what :func:`parallelize` returned; ``loss`` is needed for :meth:`run` only."""
        self.scaler = scaler_for(config, mesh.device_type)
        self._model, self._optimizer, self._mesh, self._config = model, optimizer, mesh, config
        self._schedule, self._loss_function = schedule, loss
        self._parameters = list(model.parameters())
        self._pipeline: Pipeline | None = None
        if loss is not None and size(mesh, "pipeline") > 1:
            self._pipeline = Pipeline(model, mesh, config, self._scaled(loss))
        self._device = torch.device(mesh.device_type)
        self._loss: Tensor | None = None
        self._done = 0
        self._skipped_in_a_row = 0
        self._is_first = True

    @property
    def state(self) -> dict[str, ShardedGradScaler]:
        """What a checkpoint needs of it: ``checkpoints.track(..., **step.state)``."""
        return {} if self.scaler is None else {"scaler": self.scaler}

    def run(self, inputs: Tensor, targets: Tensor) -> None:
        """Forward and backward passes of a step. Every rank calls it.

        ``inputs`` and ``targets`` are (batch_size * accumulate, ...), on the CPU or on the rank's device. Other numbers
        of samples, such as the last of an epoch, are cut as evenly as may be, and each sample of this rank counts
        alike; a pipeline needs the same number in each step. Every rank counts alike, whatever its number of samples.
        """
        assert self._loss_function is not None, "Step(..., loss=...)"
        inputs, targets = (part.to(self._device, non_blocking=True) for part in (inputs, targets))
        if self._pipeline is not None:
            self._done = self._config.accumulate
            loss = self._pipeline.run(inputs, targets)
            self._loss = loss if self.scaler is None else loss / self.scaler.get_scale()
            return
        count = self._config.accumulate
        for some, wanted in zip(inputs.tensor_split(count), targets.tensor_split(count), strict=True):
            weight = len(some) / len(inputs)
            if not len(some):  # ranks whose model is sharded make the same passes, though some have less to do
                some, wanted = inputs[:1], targets[:1]
            with self.micro():
                self.backward(self._loss_function(self._model(some), wanted), weight=weight)

    @contextmanager
    def micro(self) -> Iterator[None]:
        """The body is one micro-batch: gradients stay on their rank until the last one of the step."""
        self._done += 1
        is_last = self._done == self._config.accumulate
        if isinstance(self._model, FSDPModule):
            self._model.set_requires_gradient_sync(is_last)
            self._model.set_is_last_backward(is_last)
        waits = isinstance(self._model, DistributedDataParallel) and not is_last
        with self._model.no_sync() if waits else nullcontext():  # type: ignore[operator]
            yield

    def backward(self, loss: Tensor, *, weight: float | None = None) -> None:
        """The backward pass for the mean loss of a micro-batch; inside of :meth:`micro`.

        ``weight`` is its part of this rank's samples in the step; None where all micro-batches have as many. Where some
        do not count (ignored tokens), it is the part of those that do.
        """
        if weight is None:
            weight = 1 / self._config.accumulate
        share = loss if weight == 1 else loss * weight
        self._loss = share.detach() if self._loss is None else self._loss + share.detach()
        (share if self.scaler is None else self.scaler.scale(share)).backward()  # type: ignore[no-untyped-call]

    def finish(self) -> Finished:
        """Clip, apply and forget the gradients, and go on with the schedule. Every rank calls it.

        The norm of the gradient is the same on all ranks, so all of them skip a step or none does. Raises
        :class:`DivergedError`, on all ranks, where ``train.nonFinite`` says so.
        """
        if self._done != self._config.accumulate:
            wanted = self._config.accumulate
            raise RuntimeError(f"finish() after {self._done} micro-batches, train.accumulate is {wanted}")
        grads = gradients(self._parameters)
        if self.scaler is not None:
            self.scaler.unscale_(self._optimizer)
        mean = torch.zeros((), device=self._device) if self._loss is None else self._loss
        loss, norm = torch.stack([mean.double(), gradient_norm(grads, self._mesh)]).tolist()
        clip = self._config.clip_norm
        if math.isfinite(norm) and 0 < clip < norm:
            scale(grads, clip / (norm + CLIP_EPSILON))
        learning_rate = float(self._optimizer.param_groups[0]["lr"])
        self._apply(norm, loss)
        if self._schedule is not None:
            self._schedule.step()
        self._optimizer.zero_grad()
        self._done, self._loss = 0, None
        if self._is_first:
            self._is_first = False
            set_timeout(step_timeout(self._config), groups(self._mesh))
        return Finished(loss, norm, learning_rate, skipped=not math.isfinite(norm))

    def _apply(self, norm: float, loss: float) -> None:
        """Make the optimizer's step where the gradient is finite."""
        scale_before = self.scaler.get_scale() if self.scaler is not None else 0.0
        if self.scaler is not None:
            self.scaler.step(self._optimizer)  # which skips on all ranks where one has found an infinity
            self.scaler.update()
        elif math.isfinite(norm):
            self._optimizer.step()
        if math.isfinite(norm):
            self._skipped_in_a_row = 0
        elif scale_before <= LEAST_SCALE:  # otherwise the smaller scale may be all that is needed
            self._count(norm, loss)

    def _count(self, norm: float, loss: float) -> None:
        self._skipped_in_a_row += 1
        wanted = self._config.non_finite
        if wanted.action == "skip" and self._skipped_in_a_row <= wanted.limit:
            return
        times = f"in {self._skipped_in_a_row} steps in a row" if wanted.action == "skip" else "in this step"
        raise DivergedError(
            f"the norm of the gradient is {norm:g} {times}, the loss {loss:g}",
            hint="lower train.learningRate, raise train.warmupSteps, set train.clipNorm, or look at the data; "
            "train.nonFinite.action: skip leaves out up to train.nonFinite.limit such steps in a row",
        )

    def _scaled(self, loss: Loss) -> Loss:
        """What a pipeline's last stage starts its backward passes from."""
        if (scaler := self.scaler) is None:
            return loss
        return lambda outputs, targets: scaler.scale(loss(outputs, targets))
