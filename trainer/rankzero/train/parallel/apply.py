"""A plain model becomes one that this rank trains its part of. The model's code knows nothing of it."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor import _random as dtensor_random
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.train.distributed import seed
from rankzero.train.parallel import activation, pipeline, precision
from rankzero.train.parallel.blocks import block_types, blocks_of
from rankzero.train.parallel.mesh import data_ranks, size

Plan = Mapping[str, ParallelStyle]
"""For tensor parallelism: how each module is split, by its name or a pattern of names (``blocks.*.query``)."""


def parallelize(model: nn.Module, mesh: DeviceMesh, config: TrainConfig, *, plan: Plan | None = None) -> nn.Module:
    """Spread ``model`` over the mesh; returns what the loop calls in its place. Every rank calls it.

    In this order: pipeline stage, tensor plan, recomputation, compilation, precision, then sharding or replication.
    All ranks go on from the weights that the first rank of their pipeline stage has, and with random numbers that are
    the same on ranks which work on the same samples. Make the optimizer afterwards: the parameters are others.

    Raises :class:`ConfigError` where a setting does not fit the model.
    """
    stages, tensor = size(mesh, "pipeline"), size(mesh, "tensor")
    dtype = precision.dtype_of(config, mesh.device_type)
    kinds = block_types(model)
    if tensor > 1:
        _check_plan(model, plan, tensor)
    if stages > 1:
        model = pipeline.stage_of(model, mesh)
    returns_float32 = mesh.get_local_rank("pipeline") == stages - 1
    # DDP can handle neither split parameters nor a pipeline's passes (torch 2.13 fails in the second step of GPipe);
    # fully_shard over one rank does its work there.
    sharded = size(mesh, "shard") > 1 or tensor > 1 or stages > 1
    fully = sharded and size(mesh, "replicate", "shard") > 1
    if tensor > 1 or not fully:  # otherwise fully_shard moves block by block: the whole need not fit a device
        model.to(_device(mesh))
    if sharded:
        _take_first_ranks_weights(model, mesh)
    if tensor > 1 and plan:
        _split_layers(model, mesh, plan)
    blocks = blocks_of(model, kinds)
    if config.activation_checkpointing != "none":
        activation.recompute(blocks or [model], config.activation_checkpointing)
    if config.compile:
        _compile(blocks or [model])
    if fully:
        _shard(model, blocks, mesh, dtype, returns_float32)
    else:
        if dtype is not None:
            precision.autocast(model, mesh.device_type, dtype, returns_float32=returns_float32)
        model = _replicate(model, mesh, config)
    seed(config.seed + data_ranks(mesh)[0])
    if tensor > 1 and mesh.device_type != "cpu":
        # Otherwise the first random operation on a DTensor waits for all ranks of the world, of which a pipeline's
        # other stages may never come, and gives all of them the random state of rank 0. (Never run here: for GPUs.)
        dtensor_random.manual_seed(config.seed + data_ranks(mesh)[0], mesh["tensor"])
    return model


def _device(mesh: DeviceMesh) -> torch.device:
    if mesh.device_type == "cpu":
        return torch.device("cpu")
    return torch.device(mesh.device_type, torch.accelerator.current_device_index())


def _take_first_ranks_weights(model: nn.Module, mesh: DeviceMesh) -> None:
    """As DDP does: broadcasts of every parameter and buffer, along each dimension in turn; they stay where they are."""
    device = _device(mesh)
    groups = [mesh.get_group(name) for name in ("tensor", "shard", "replicate")]
    for tensor in (*model.parameters(), *model.buffers()):
        there = tensor.detach().to(device)
        for group in groups:
            if group.size() > 1:
                dist.broadcast(there, group=group, group_src=0)
        if there.device != tensor.device:
            tensor.detach().copy_(there)


def _check_plan(model: nn.Module, plan: Plan | None, tensor: int) -> None:
    if not plan:
        raise ConfigError(
            f"train.parallel.tensor is {tensor} and the script gives no plan for {type(model).__name__}",
            hint="allowed without a plan: 1; or pass parallelize(..., plan={'blocks.*.query': ColwiseParallel(), ...})",
        )
    names = [name for name, _ in model.named_modules()]
    for pattern in plan:
        if not any(_matches(name, pattern) for name in names):
            raise ConfigError(
                f"the tensor plan names {pattern}, and {type(model).__name__} has no such module",
                hint=f"names look like {', '.join(names[1:4])}",
            )


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _split_layers(model: nn.Module, mesh: DeviceMesh, plan: Plan) -> None:
    """Apply what the plan says of modules that are here: other stages have others."""
    names = [name for name, _ in model.named_modules()]
    here = {pattern: style for pattern, style in plan.items() if any(_matches(name, pattern) for name in names)}
    parallelize_module(model, mesh["tensor"], here)
    tensor = size(mesh, "tensor")
    for name, parameter in model.named_parameters():
        for placement in parameter.placements if isinstance(parameter, DTensor) else ():
            if isinstance(placement, Shard) and parameter.shape[placement.dim] % tensor:
                length = parameter.shape[placement.dim]
                allowed = [n for n in range(1, min(length, 64) + 1) if length % n == 0]
                raise ConfigError(
                    f"train.parallel.tensor is {tensor}, which does not divide the {length} of {name}",
                    hint=f"allowed: {', '.join(map(str, allowed))}",
                )


def _compile(modules: list[nn.Module]) -> None:
    """Blocks that are alike are compiled once. Fails now, and not in the first step, where there is no compiler."""
    compilers = [os.environ.get("CC", ""), "gcc", "clang", "cc"]
    if not any(map(shutil.which, filter(None, compilers))):
        raise ConfigError(
            "train.compile is true and the image has no C compiler, which torch.compile calls",
            hint="allowed in this image: false; or add gcc (and g++ for training on the CPU) to it, or set CC",
        )
    for module in modules:
        module.compile()


def _shard(
    model: nn.Module, blocks: list[nn.Module], mesh: DeviceMesh, dtype: torch.dtype | None, returns_float32: bool
) -> None:
    """Shard parameters along ``shard``, replicate along ``replicate``; gradients are means over both."""
    where = mesh["replicate", "shard"] if size(mesh, "replicate") > 1 else mesh["shard"]
    for block in blocks:
        if block is not model:
            fully_shard(block, mesh=where, mp_policy=precision.sharded_policy(dtype, returns_float32=False))
    fully_shard(model, mesh=where, mp_policy=precision.sharded_policy(dtype, returns_float32=returns_float32))


def _replicate(model: nn.Module, mesh: DeviceMesh, config: TrainConfig) -> nn.Module:
    if config.parallel.strategy == "data-parallel":
        _check_data_parallel(config)
        print(
            "warning: train.parallel.strategy is data-parallel: one process copies the model to all GPUs in each step\n"
            "  better: ddp, with procsPerNode as many as there are GPUs; the script stays the same",
            flush=True,
        )
        return nn.DataParallel(model)
    if size(mesh, "replicate") == 1:
        return model
    return DistributedDataParallel(
        model,
        device_ids=None if mesh.device_type == "cpu" else [_device(mesh)],
        process_group=mesh.get_group("replicate"),
        gradient_as_bucket_view=True,
        find_unused_parameters=config.parallel.find_unused_parameters,
    )


def _check_data_parallel(config: TrainConfig) -> None:
    """DataParallel copies the model in each step, but not what was put around its ``forward``."""
    settings = {
        "precision": (config.precision, "fp32"),
        "activationCheckpointing": (config.activation_checkpointing, "none"),
        "compile": (config.compile, False),
    }
    for key, (value, allowed) in settings.items():
        if value != allowed:
            raise ConfigError(
                f"train.{key} is {str(value).lower()} and train.parallel.strategy data-parallel",
                hint=f"allowed with data-parallel: {str(allowed).lower()}; every other strategy has it",
            )
