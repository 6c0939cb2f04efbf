"""The live objects of a run, and what of them goes into a checkpoint.

Modules and optimizers go through torch.distributed.checkpoint: their tensors have names that depend neither on the
number of ranks nor on how they are sharded (plain, DDP, FSDP, HSDP, tensor parallel). What else has a state_dict is
small and the same on all ranks; rank 0's is kept.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.optim import Optimizer

from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import randomness
from rankzero.train.sharding import local

RANDOM, STEP = "random", "step"
"""Parts that every checkpoint has, beside the tracked ones."""


@runtime_checkable
class HasState(Protocol):
    """A learning-rate schedule, a gradient scaler, a data loader, ..."""

    def state_dict(self) -> Any:
        """Plain data: numbers, texts, lists, dicts, small tensors."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from there."""


@dataclass(frozen=True)
class Capture:
    """The state of a rank at one step. ``entries`` are the live tensors themselves, not copies."""

    entries: dict[str, Any]
    """By name: a tensor, a DTensor, or (rare) plain data."""
    stable: frozenset[str]
    """Names of tensors that nothing but a tracked optimizer's step changes."""
    common: bytes
    """What is the same on all ranks; empty on all but rank 0."""
    own: dict[str, Any]
    """What this rank alone has."""


class Tracked:
    """What the script has handed over, by name."""

    def __init__(self) -> None:
        self.modules: dict[str, nn.Module] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.objects: dict[str, HasState] = {}
        self.own: dict[str, HasState] = {}
        self._tried: set[str] = set()

    @property
    def names(self) -> list[str]:
        """All parts of a checkpoint."""
        return [*self.modules, *self.optimizers, *self.objects, *self.own, RANDOM, STEP]

    def add(self, name: str, part: object) -> None:
        """Track a part. Raises :class:`CheckpointError` where nobody could save it."""
        if name in self.names or "." in name:
            raise CheckpointError(f"a part {name!r} cannot be tracked", hint=f"names so far: {', '.join(self.names)}")
        if isinstance(part, nn.DataParallel):
            part = part.module  # whose names other forms have too; get_model_state_dict does so for DDP alone
        if isinstance(part, nn.Module):
            self.modules[name] = part
        elif isinstance(part, Optimizer):
            self.optimizers[name] = part
        else:
            self.objects[name] = _with_state(name, part)

    def add_own(self, name: str, part: object) -> None:
        """Track a part that differs between ranks and cannot be split anew."""
        if name in self.names:
            raise CheckpointError(f"a part {name!r} is tracked already", hint="give each a name of its own")
        self.own[name] = _with_state(name, part)

    def capture(self, step: int, *, is_first: bool) -> Capture:
        """The state after ``step``. Each rank calls it."""
        entries: dict[str, Any] = {}
        for name, module in self.modules.items():
            entries.update({f"{name}.{key}": value for key, value in get_model_state_dict(module).items()})
        stepped = {local(parameter).data_ptr() for parameter in self._stepped()} - {0}
        stable = {key for key, value in entries.items() if _address(value) in stepped}
        groups = {}
        for name, optimizer in self.optimizers.items():
            # Asked for a state that is not there yet, torch makes a step to have one, which Adam would count.
            there = bool(optimizer.state)
            states, whole = self.optimizer_state(name) if there else ({}, optimizer.state_dict()["param_groups"])
            groups[name] = [{key: value for key, value in group.items() if key != "params"} for group in whole]
            entries.update(states)
            stable.update(key for key, value in states.items() if isinstance(value, Tensor))
        common = b""
        if is_first:
            objects = {name: part.state_dict() for name, part in self.objects.items()}
            common = self._packed({STEP: step, "objects": objects, "groups": groups})
        own = {name: copy.deepcopy(part.state_dict()) for name, part in self.own.items()}
        own[RANDOM] = randomness.state()
        return Capture(entries, frozenset(stable), common, own)

    def entries(self, optimizers: Iterable[str]) -> dict[str, Any]:
        """All tensors of modules and of these optimizers by name, as they are now."""
        found: dict[str, Any] = {}
        for name, module in self.modules.items():
            found.update({f"{name}.{key}": value for key, value in get_model_state_dict(module).items()})
        for name in optimizers:
            found.update(self.optimizer_state(name)[0])
        return found

    def optimizer_state(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The state of an optimizer by name, and its parameter groups with the names of their parameters."""
        states: Mapping[str, Any] = get_optimizer_state_dict(self.module_of(name), self.optimizers[name])
        entries = {
            f"{name}.state.{parameter}.{key}": value
            for parameter, state in states["state"].items()
            for key, value in state.items()
        }
        return entries, states["param_groups"]

    def module_of(self, name: str) -> nn.Module:
        """The tracked module whose parameters an optimizer steps; several are put into one, under their names.

        Raises :class:`CheckpointError` where there is none.
        """
        groups = self.optimizers[name].param_groups
        mine = {id(parameter) for group in groups for parameter in group["params"]}
        held = {key: set(map(id, module.parameters())) for key, module in self.modules.items()}
        for key, module in self.modules.items():
            if mine <= held[key]:
                return module
        if not mine <= set().union(*held.values()):
            raise CheckpointError(
                f"the optimizer {name!r} has parameters of no tracked module", hint="track its model as well, before it"
            )
        return nn.ModuleDict({key: module for key, module in self.modules.items() if mine & held[key]})

    def _stepped(self) -> Iterator[Tensor]:
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                yield from group["params"]

    def _packed(self, common: dict[str, Any]) -> bytes:
        """As bytes that can be read back without running anybody's code: the first time that is tried."""
        buffer = io.BytesIO()
        torch.save(common, buffer)
        if fresh := set(self.objects) - self._tried:
            for name in sorted(fresh):
                trial = io.BytesIO()
                torch.save(common["objects"][name], trial)
                trial.seek(0)
                try:
                    torch.load(trial, weights_only=True)
                except Exception as error:
                    raise CheckpointError(
                        f"the state of {name!r} could not be loaded again: {error}",
                        hint="its state_dict() must be plain data: numbers, texts, lists, dicts and tensors",
                    ) from error
            self._tried |= fresh
        return buffer.getvalue()


def _with_state(name: str, part: object) -> HasState:
    if not isinstance(part, HasState):
        raise CheckpointError(
            f"{name!r} ({type(part).__name__}) has no state to save",
            hint="track modules, optimizers, and objects with state_dict() and load_state_dict()",
        )
    return part


def _address(value: Any) -> int:
    return local(value).data_ptr() if isinstance(value, Tensor) else 0
