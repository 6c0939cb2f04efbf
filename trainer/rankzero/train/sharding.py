"""Tensors that may be sharded."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor; all of it where it is not split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
