"""Tells forward, backward and sync apart by PyTorch's own hooks, so that a loop need not say what it does.

Sync is what lies between the end of the backward pass and the optimizer's step: there a rank waits until the gradients
of all others have come. Only then ranks of equal speed differ, so it tells which one the others wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rankzero.heartbeat import STEPPING, Heartbeat, Phase

SWITCHABLE = STEPPING | {Phase.STARTUP}
"""Phases that a hook may end; an evaluation or a checkpoint that runs the model stays what it is."""
FORWARD, BACKWARD, SYNC, TRAINING = Phase.FORWARD, Phase.BACKWARD, Phase.SYNC, Phase.TRAINING
"""Names of a module: those of an enumeration are searched for in Python 3.11, which a step notices."""
MOST_PENDING = 64
"""Waits on a GPU that have not come to their end."""


class Mark(Protocol):
    """A moment on a device, as torch.cuda.Event."""

    def record(self) -> None:
        """The moment is when the device has done all that it was given."""

    def query(self) -> bool:
        """Whether it is past."""

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds to another one."""


class DeviceWait:
    """How long a GPU waits in sync, which the host cannot see: it only hands over work."""

    def __init__(self, make: Callable[[], Mark]) -> None:
        self._make = make
        self._begun: Mark | None = None
        self._pending: deque[tuple[Mark, Mark]] = deque(maxlen=MOST_PENDING)

    def begin(self) -> None:
        """The backward pass has been handed over; what follows waits for the others' gradients."""
        self._begun = self._make()
        self._begun.record()

    def end(self) -> None:
        """The wait has been handed over."""
        if self._begun is not None:
            end = self._make()
            end.record()
            self._pending.append((self._begun, end))
            self._begun = None

    def take(self) -> float:
        """Seconds of all waits that have come to their end since this was asked; it waits for none."""
        seconds = 0.0
        while self._pending and self._pending[0][1].query():
            begin, end = self._pending.popleft()
            seconds += begin.elapsed_time(end) / 1000
        return seconds


class Phases:
    """Hooks on a model and its optimizer. ``device_wait`` is for a GPU."""

    def __init__(self, heartbeat: Heartbeat, device_wait: DeviceWait | None = None) -> None:
        self._heartbeat = heartbeat
        self._device_wait = device_wait

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """``model`` is what the loop calls: DDP's wrapper, the compiled one."""
        model.register_forward_pre_hook(self._forward)
        model.register_forward_hook(self._forward_done, prepend=True)  # its own output, before FSDP's hook casts it
        if optimizer is not None:
            optimizer.register_step_pre_hook(self._stepping)

    def waited(self) -> float | None:
        """Seconds that the GPU waited for others since this was asked; None without one."""
        return None if self._device_wait is None else self._device_wait.take()

    def _enter(self, phase: Phase) -> bool:
        if self._heartbeat.doing not in SWITCHABLE:
            return False
        self._heartbeat.enter(phase)
        return True

    def _forward(self, _model: nn.Module, _arguments: Any) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._enter(FORWARD)

    def _forward_done(self, _model: nn.Module, _arguments: Any, output: Any) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            first = next((tensor for tensor in tensors(output) if tensor.requires_grad), None)
            if first is None:
                return
            if (node := first.grad_fn) is not None:  # the same moment as the tensor's own hook, for a third of its cost
                node.register_prehook(self._backward)
            else:
                first.register_hook(self._backward)  # type: ignore[no-untyped-call]

    def _backward(self, _gradients: Any) -> None:
        if self._enter(BACKWARD):
            # DDP asks for the same, to wait there for what it has sent, but later: ours comes first.
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_done)

    def _backward_done(self) -> None:
        if self._enter(SYNC) and self._device_wait is not None:
            self._device_wait.begin()

    def _stepping(self, *_: Any) -> None:
        if self._enter(TRAINING) and self._device_wait is not None:
            self._device_wait.end()


def tensors(output: Any) -> Iterable[Tensor]:
    """All tensors in what a model returns: one, or a tuple, list or mapping of them, however deep."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors(value)
    elif isinstance(output, tuple | list):
        for value in output:
            yield from tensors(value)
