"""Who writes what: torch.distributed.checkpoint's plan, made once and used again while nothing changes its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.tensor import DTensor

from rankzero.train.checkpoint.peers import Peers


@dataclass(frozen=True)
class Plan:
    """What this rank writes.

    What several ranks hold alike (DDP, the replicas of HSDP) is written by one of them, spread over them by size. Of
    what they only hold each for itself, such as the running means of a batch norm, the lowest rank's is written: DDP
    gives its to the others before each forward pass.
    """

    form: list[Any]
    """Names, shapes, types and layouts of what it was made for."""
    mine: SavePlan
    metadata: Metadata | None
    """Of the whole checkpoint, on rank 0."""

    @property
    def names(self) -> set[str]:
        """Of the entries that this rank writes."""
        return {item.index.fqn for item in self.mine.items}


class Planner(DefaultSavePlanner):
    """Finds what to write among copies: each is this rank's part of an entry, on the CPU, of that name."""

    def __init__(self, copies: Mapping[str, Any]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.copies = copies

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The copy of an entry."""
        return self.copies[index.fqn]


def form_of(entries: Mapping[str, Any]) -> list[Any]:
    """What a plan depends on."""
    form: list[Any] = []
    for name, value in entries.items():
        if isinstance(value, DTensor):
            form.append((name, value.shape, value.dtype, value.placements, value.device_mesh))
        elif isinstance(value, Tensor):
            form.append((name, value.shape, value.dtype))
        else:
            form.append(name)
    return form


def agreed(before: Plan | None, entries: dict[str, Any], stable: frozenset[str], folder: Path, peers: Peers) -> Plan:
    """The plan for ``entries``; ``before`` where it fits on all ranks. Every rank calls it.

    Plain tensors that are not ``stable``, in that only an optimizer changes them, may differ between ranks.

    Raises ValueError on every rank where parts of a tensor overlap or are missing.
    """
    form = form_of(entries)
    if before is not None and not peers.any(form != before.form):
        return before
    planner, writer = Planner({}), FileSystemWriter(folder)
    planner.set_up_planner(entries, is_coordinator=peers.is_first)
    loose = {name for name, value in entries.items() if name not in stable and not isinstance(value, DTensor)}
    offers = peers.gather((planner.create_local_plan(), loose))
    plans = _of_lowest_ranks(offers)
    metadata, problem = None, ""
    if peers.is_first:
        try:
            plans, metadata = planner.create_global_plan(plans)
        except ValueError as error:
            problem = str(error)
        else:
            plans = writer.prepare_global_plan(plans)
    if problem := peers.broadcast(problem):
        raise ValueError(problem)
    return Plan(form, planner.finish_plan(peers.scatter(plans)), metadata)


def _of_lowest_ranks(offers: list[tuple[SavePlan, set[str]]]) -> list[SavePlan]:
    """The plans of all ranks, each loose entry in the first one only that has it."""
    seen: set[str] = set()
    plans = []
    for plan, loose in offers:
        plans.append(replace(plan, items=[item for item in plan.items if item.index.fqn not in seen]))
        seen |= loose
    return plans
