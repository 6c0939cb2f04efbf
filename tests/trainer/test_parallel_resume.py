"""A run goes on in another form of parallelism, on another number of ranks, and learns what one process learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from rankzero.config import CheckpointConfig, ResumeConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.gpt import gpt, tensor_plan
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import data_ranks
from rankzero.train.parallel.step import Step
from tests.trainer.parallel_models import MODEL, batch, loss, prepared
from tests.trainer.ranks import run

pytestmark = pytest.mark.timeout(400)  # eight ranks on two busy cores have needed a minute

BATCH, TOLERANCE = 8, 1e-9
COURSE: list[tuple[int, dict[str, Any]]] = [
    (1, {"parallel": {"strategy": "data-parallel"}}),
    (2, {"parallel": {"strategy": "fsdp"}}),
    (4, {"parallel": {"pipeline": 2, "tensor": 2}, "accumulate": 2}),
    (4, {"parallel": {"strategy": "hsdp"}, "accumulate": 2}),
    (2, {}),
]
"""Ranks and settings of each attempt, which makes two steps."""


def losses(rank: int, settings: dict[str, Any], folder: Path, until: int) -> list[float]:
    """Resume, and train up to step ``until``; the losses of all ranks together."""
    config, mesh = prepared(rank, settings)
    index, count = data_ranks(mesh)
    torch.manual_seed(0)
    model = parallelize(gpt(**MODEL).double(), mesh, config, plan=tensor_plan())
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    step = Step(model, optimizer, mesh, config, loss=loss)
    found, share = [], BATCH // count
    with Checkpoints(folder, CheckpointConfig(every_steps=1)) as checkpoints:
        checkpoints.track(model=model, optimizer=optimizer)
        number = checkpoints.resume()
        while number < until:
            number += 1
            step.run(*(whole[index * share :][:share] for whole in batch(number, BATCH)))
            mean = torch.tensor(step.finish().loss, dtype=torch.float64)
            dist.all_reduce(mean)
            found.append(float(mean) / dist.get_world_size())
        checkpoints.save(number, final=True)
    return found


@pytest.mark.slow
def test_a_run_goes_on_in_every_other_form(tmp_path: Path) -> None:
    """Weights and momentum are found by their names, whoever held them. The tolerance is that of the forms."""
    alone = run(losses, 1, {}, tmp_path / "alone", 2 * len(COURSE))[0]
    together: list[float] = []
    for world_size, settings in COURSE:
        together += run(losses, world_size, settings, tmp_path / "together", len(together) + 2)[0]
    assert together == pytest.approx(alone, rel=TOLERANCE)


def wrong_weights(rank: int, settings: dict[str, Any], file: Path) -> list[str]:
    """Names of those that are not the file's, once it has been loaded."""
    config, mesh = prepared(rank, settings)
    torch.manual_seed(1)
    model = parallelize(gpt(**MODEL), mesh, config, plan=tensor_plan())
    checkpoints = Checkpoints(file.parent / "run", resume=ResumeConfig(from_=str(file)))
    checkpoints.track(model=model)
    assert checkpoints.resume() == 0
    torch.manual_seed(0)
    expected = gpt(**MODEL).state_dict()
    found: dict[str, Any] = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return [name for name, value in found.items() if not torch.equal(value, expected[name])]


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"pipeline": 2}, {"strategy": "fsdp", "tensor": 2}], ids=str)
def test_a_file_of_weights_is_loaded_into_every_form(tmp_path: Path, form: dict[str, Any]) -> None:
    """A stage of a pipeline takes its own of them, and the others are not too many."""
    torch.manual_seed(0)
    save_file(gpt(**MODEL).state_dict(), tmp_path / "base.safetensors")
    assert run(wrong_weights, 4, {"parallel": form, "accumulate": 2}, tmp_path / "base.safetensors") == [[]] * 4
