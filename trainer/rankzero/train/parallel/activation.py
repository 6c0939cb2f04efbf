"""Activation checkpointing: a block keeps its input, and computes in the backward pass what it needs again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
KEPT = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    }
)
"""What selective checkpointing keeps: the operations whose repetition takes long."""


def recompute(blocks: Iterable[nn.Module], mode: Literal["selective", "full"]) -> None:
    """Have each block compute its activations again in the backward pass; random numbers come out the same.

    The names of parameters stay as they are: only the blocks' ``forward`` is another.
    """
    more: dict[str, Any] = {}
    if mode == "selective":
        more["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, **more)


def _policy(_context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
