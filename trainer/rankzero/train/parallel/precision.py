"""Mixed precision: layers compute with 16 bits, weights and the sums of gradients keep 32."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.utils._pytree import tree_map

from rankzero.config import TrainConfig
from rankzero.errors import ConfigError

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_of(config: TrainConfig, device_type: str) -> torch.dtype | None:
    """What layers compute with; None where nothing is to be converted.

    Raises :class:`ConfigError` for fp16 on a CPU, which has no operations for much of it and no use for it.
    """
    if config.precision == "fp16" and device_type == "cpu":
        raise ConfigError(
            "train.precision is fp16 and the ranks compute on the CPU",
            hint="allowed on a CPU: fp32, bf16; fp16 needs a GPU",
        )
    return DTYPES[config.precision]


def autocast(model: nn.Module, device_type: str, dtype: torch.dtype, *, returns_float32: bool) -> None:
    """Have ``model`` compute with ``dtype`` where that is safe, and return float32, so that the loss is exact."""
    inner = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype):
            output = inner(*args, **kwargs)
        return tree_map(_to_float32, output) if returns_float32 else output

    model.forward = forward


def sharded_policy(dtype: torch.dtype | None, *, returns_float32: bool) -> MixedPrecisionPolicy:
    """The same for ``fully_shard``: parameters are gathered as ``dtype``, gradients are summed as float32."""
    if dtype is None:
        return MixedPrecisionPolicy()
    output = torch.float32 if returns_float32 else None
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, output_dtype=output)


def scaler_for(config: TrainConfig, device_type: str) -> ShardedGradScaler | None:
    """The loss scaler for fp16, whose range gradients leave; all ranks agree whether one of them has an overflow."""
    if config.precision != "fp16":
        return None
    scaler = ShardedGradScaler(device_type, process_group=dist.group.WORLD)
    scaler.scale(torch.zeros((), device=device_type))  # it begins with its first use, which not every stage has
    return scaler


def _to_float32(value: Any) -> Any:
    is_half = isinstance(value, Tensor) and value.dtype in {torch.bfloat16, torch.float16}
    return value.float() if is_half else value
