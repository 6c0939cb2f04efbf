"""What a model is worth on other data, in every form of parallelism alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from rankzero.errors import DataError
from rankzero.train.parallel.mesh import size

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, on the CPU or on the rank's device."""
Measure = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) of a batch -> what is to be added up: right answers, a sum of losses, or several such numbers."""


@torch.no_grad()
def evaluate(model: nn.Module, mesh: DeviceMesh, batches: Iterable[Batch], measure: Measure) -> Tensor:
    """The sum of ``measure(outputs, targets)`` over all batches of all ranks, the same on each. Every rank calls it.

    ``model`` is what :func:`parallelize` returned; it is in evaluation mode meanwhile, and each layer afterwards as it
    was. ``batches`` are this rank's part of the data, by :func:`data_ranks`; one rank may have more of them than
    another. Raises :class:`DataError`, on all ranks, where one of them has none.
    """
    device = torch.device(mesh.device_type)
    training, total = [layer for layer in model.modules() if layer.training], None
    model.eval()
    try:
        for (inputs, targets), counts in _rounds(batches, device):
            outputs = _outputs(model, mesh, inputs.to(device, non_blocking=True))
            if outputs is not None and counts:
                found = measure(outputs, targets.to(device, non_blocking=True))
                total = found.clone() if total is None else total + found
    finally:
        for layer in training:  # not by model.train(), which would also train those that a script has frozen
            layer.training = True
    return _over_all(total, mesh, device)


def _rounds(batches: Iterable[Batch], device: torch.device) -> Iterator[tuple[Batch, bool]]:
    """As many batches on every rank, and whether each counts: sharded layers want all ranks in each forward pass.

    A rank that has come to its end repeats its last batch until all others have.
    """
    remaining = iter(batches)
    batch, counts = next(remaining, None), True
    if not _on_all(batch is not None, device) or batch is None:
        has = "none" if batch is None else "some"
        raise DataError(
            f"not every rank has a batch to evaluate, rank {dist.get_rank()} has {has}",
            hint="evaluate on fewer ranks, or on more data in smaller batches",
        )
    while True:
        yield batch, counts
        following = next(remaining, None)
        counts = following is not None
        if _on_all(not counts, device):
            return
        batch = following or batch


def _on_all(this: bool, device: torch.device) -> bool:
    """Whether it is so on all ranks of the world."""
    dist.all_reduce(flag := torch.tensor(int(this), device=device), dist.ReduceOp.MIN)
    return bool(flag)


def _outputs(model: nn.Module, mesh: DeviceMesh, inputs: Tensor) -> Tensor | None:
    """The outputs for a batch, which goes through a pipeline whole; None on all its stages but the last."""
    stages, stage = size(mesh, "pipeline"), mesh.get_local_rank("pipeline")
    group = mesh.get_group("pipeline")
    outputs: Tensor = model(inputs if stage == 0 else _receive(group, stage - 1, inputs.device))
    if stage == stages - 1:
        return outputs
    _send(outputs, group, stage + 1)
    return None


def _send(tensor: Tensor, group: dist.ProcessGroup, to: int) -> None:
    """What it is, then its values."""
    what = [(tensor.shape, tensor.dtype)]
    dist.send_object_list(what, group=group, device=tensor.device, group_dst=to)
    dist.send(tensor.contiguous(), group=group, group_dst=to)


def _receive(group: dist.ProcessGroup, source: int, device: torch.device) -> Tensor:
    what: list[tuple[torch.Size, torch.dtype]] = [(torch.Size(), torch.float32)]
    dist.recv_object_list(what, group=group, device=device, group_src=source)
    shape, dtype = what[0]
    dist.recv(tensor := torch.empty(shape, dtype=dtype, device=device), group=group, group_src=source)
    return tensor


def _over_all(total: Tensor | None, mesh: DeviceMesh, device: torch.device) -> Tensor:
    """Add up what ranks with data of their own have found; last stages then tell the others of their pipeline."""
    if total is not None:
        for name in ("replicate", "shard"):
            dist.all_reduce(total, group=mesh.get_group(name))
    stages = size(mesh, "pipeline")
    if stages > 1:
        told = [None if total is None else total.cpu()]  # on a GPU it would name that of the rank that tells it
        dist.broadcast_object_list(told, group=mesh.get_group("pipeline"), group_src=stages - 1, device=device)
        total = told[0]
    assert total is not None, "a last stage has outputs"
    return total.to(device)
