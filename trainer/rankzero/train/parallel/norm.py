"""The norm of the whole gradient, wherever its parts lie."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from rankzero.train.parallel.mesh import size
from rankzero.train.sharding import local


def gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Those that there are. Every rank calls it.

    Where ranks hold addends of a gradient (layers that a tensor plan splits along the sequence) they are summed first.
    """
    found: list[Tensor] = []
    for parameter in parameters:
        grad = parameter.grad
        if isinstance(grad, DTensor):
            grad = parameter.grad = _summed(grad)
        if grad is not None:
            found.append(grad)
    return found


def gradient_norm(grads: Iterable[Tensor], mesh: DeviceMesh) -> Tensor:
    """The 2-norm of the gradient of the whole model, a number that is the same on all ranks. Every rank calls it.

    Squares are summed over the dimensions of the mesh along which a gradient is split; along the others all ranks
    have the same gradient. A NaN or an infinity anywhere is one everywhere.
    """
    by_split: dict[tuple[str, ...], list[Tensor]] = {}
    for grad in grads:
        by_split.setdefault(_split_over(grad), []).append(local(grad))
    total = torch.zeros((), device=mesh.device_type, dtype=torch.float64)  # whose squares do not overflow
    for split, parts in sorted(by_split.items()):
        square = torch.stack(norms(joined(parts))).double().square().sum()
        for name in split:
            dist.all_reduce(square, group=mesh.get_group(name))
        total = total + square
    if size(mesh, "pipeline") > 1:
        dist.all_reduce(total, group=mesh.get_group("pipeline"))
    if size(mesh, "tensor") > 1:  # layers that are not split are computed by each rank, and may differ in a last bit
        dist.all_reduce(total, group=mesh.get_group("tensor"))
        total = total / size(mesh, "tensor")
    return total.sqrt()


def norms(parts: list[Tensor]) -> tuple[Tensor, ...]:
    """The 2-norm of each, in 32 bits at least: in 16, many small numbers overflow or have three digits."""
    dtype = reduce(torch.promote_types, {part.dtype for part in parts}, torch.float32)
    return torch._foreach_norm(parts, 2, dtype)


def joined(parts: Iterable[Tensor]) -> list[Tensor]:
    """The same numbers in fewer tensors: those that fill a buffer together become one, which is flat.

    DDP keeps gradients in buckets and FSDP those of a block in one buffer; a kernel for each of a hundred small tensors
    takes longer than reading them. No two gradients share memory, so where each begins at as many numbers as those
    before it have, to the end of the buffer, none has gaps.
    """
    buffers: dict[int, list[Tensor]] = {}
    for part in parts:
        buffers.setdefault(part.untyped_storage().data_ptr(), []).append(part)
    found: list[Tensor] = []
    for inside in buffers.values():
        inside.sort(key=Tensor.storage_offset)
        begins, end = [], 0
        for part in inside:
            begins.append(end)
            end += part.numel()
        fills = end * inside[0].element_size() == inside[0].untyped_storage().nbytes()
        if fills and begins == [part.storage_offset() for part in inside]:
            found.append(inside[0].as_strided((end,), (1,), 0))
        else:
            found += inside
    return found


def scale(grads: Iterable[Tensor], factor: float) -> None:
    """Multiply the gradients in place."""
    torch._foreach_mul_([local(grad) for grad in grads], factor)


def _summed(grad: DTensor) -> DTensor:
    if not any(placement.is_partial() for placement in grad.placements):
        return grad
    whole = [Replicate() if placement.is_partial() else placement for placement in grad.placements]
    return grad.redistribute(placements=whole)


def _split_over(grad: Tensor) -> tuple[str, ...]:
    if not isinstance(grad, DTensor):
        return ()
    names = grad.device_mesh.mesh_dim_names
    assert names is not None
    return tuple(name for name, placement in zip(names, grad.placements, strict=True) if not placement.is_replicate())
