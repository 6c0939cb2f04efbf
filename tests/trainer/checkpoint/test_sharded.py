"""State that is sharded: saved by some ranks, loaded by more, fewer or one, whole and exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint import Checkpoints
from tests.trainer.ranks import run

pytestmark = pytest.mark.slow


def build(form: str) -> nn.Module:
    """A small model in one of the parallel forms; three rows leave uneven and empty shards."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    if form == "ddp":
        return DistributedDataParallel(model)
    world = dist.get_world_size() if dist.is_initialized() else 1
    if form == "fsdp":
        fully_shard(model)
    if form == "hsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard")))
    return model


def whole(value: Tensor) -> list[float]:
    """All numbers of a tensor, wherever they are. All ranks call it."""
    full = value.full_tensor() if isinstance(value, DTensor) else value
    return full.detach().flatten().tolist()


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    """Optimizer steps on the same data on all ranks, so that every form computes the same."""
    for step in range(first, last + 1):
        inputs = torch.randn(12, 6, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, list[float]]:
    """All weights, buffers and optimizer states by name."""
    found = {name.removeprefix("module."): whole(value) for name, value in model.state_dict().items()}
    names = {id(parameter): name.removeprefix("module.") for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        found |= {f"{names[id(parameter)]}.{key}": whole(value) for key, value in state.items()}
    return found


def save(_rank: int, folder: Path, form: str, asynchronous: bool) -> dict[str, list[float]]:
    """Five steps, a save, and what is going to be expected; then two more steps, which must not get into it."""
    model = build(form)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    with Checkpoints(folder, CheckpointConfig(asynchronous=asynchronous)) as checkpoints:
        checkpoints.track(model=model, optimizer=optimizer)
        steps(model, optimizer, 1, 5)
        expected = everything(model, optimizer)
        checkpoints.save(5)
        steps(model, optimizer, 6, 7)
    return expected


def load(_rank: int, folder: Path, form: str) -> tuple[int, dict[str, list[float]]]:
    """What a new process has after resume()."""
    model = build(form)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    checkpoints = Checkpoints(folder)
    checkpoints.track(model=model, optimizer=optimizer)
    return checkpoints.resume(), everything(model, optimizer)


@pytest.mark.parametrize(
    ("form", "world", "later_form", "later_world", "asynchronous"),
    [
        ("fsdp", 4, "fsdp", 2, True),
        ("hsdp", 4, "ddp", 2, False),
        ("ddp", 2, "fsdp", 4, True),
        ("fsdp", 2, "plain", 1, False),
    ],
)
def test_what_one_form_and_world_has_saved_another_has_after_its_resume(
    tmp_path: Path, form: str, world: int, later_form: str, later_world: int, asynchronous: bool
) -> None:
    expected: dict[str, Any] = run(save, world, tmp_path, form, asynchronous)[0]
    for step, found in run(load, later_world, tmp_path, later_form):
        assert step == 5
        assert found == expected
