"""Every form of parallelism learns what one process learns from the same batches.

Loss and gradient norm are compared in float64. The forms sum in another order, which changes the last of about 16
digits, and a few steps of SGD multiply that by some thousands at the most. So 1e-9 leaves three digits of room, and a
wrong factor, a gradient that is not synchronised or clipped by a part's norm shows in the first digits.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankzero.train.gpt import gpt, tensor_plan
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import data_ranks
from rankzero.train.parallel.step import Step
from tests.trainer.parallel_models import MODEL, batch, loss, prepared
from tests.trainer.ranks import run

pytestmark = pytest.mark.timeout(400)  # eight ranks on two busy cores have needed a minute

STEPS, BATCH = 3, 8
LEARNING_RATE, CLIP = 0.5, 0.3
TOLERANCE = 1e-9


def curve(rank: int, settings: dict[str, Any]) -> list[tuple[float, float]]:
    """Loss over all ranks and norm of the gradient in each step."""
    config, mesh = prepared(rank, settings)
    index, count = data_ranks(mesh)
    # All take the weights of the first rank of their stage; those of the stages belong to one model.
    torch.manual_seed(0 if mesh["pipeline"].size() > 1 else rank)
    model = parallelize(gpt(**MODEL).double(), mesh, config, plan=tensor_plan())
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)
    step = Step(model, optimizer, mesh, config, loss=loss)
    found, share = [], BATCH // count
    for number in range(STEPS):
        inputs, targets = (whole[index * share :][:share] for whole in batch(number, BATCH))
        step.run(inputs, targets)
        done = step.finish()
        mean = torch.tensor(done.loss, dtype=torch.float64)
        dist.all_reduce(mean)
        found.append((float(mean) / dist.get_world_size(), done.norm))
    return found


@pytest.fixture(scope="module")
def alone() -> list[tuple[float, float]]:
    """What one process learns by a plain loop."""
    torch.manual_seed(0)
    model = gpt(**MODEL).double()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)
    found = []
    for number in range(STEPS):
        inputs, targets = batch(number, BATCH)
        error = loss(model(inputs), targets)
        error.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        found.append((error.item(), float(norm)))
    assert all(norm > CLIP for _, norm in found), "clipping would not be seen"
    return found


FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp": (2, {}),
    "ddp, 8 ranks": (8, {}),
    "fsdp": (2, {"parallel": {"strategy": "fsdp"}}),
    "fsdp, 8 ranks": (8, {"parallel": {"strategy": "fsdp"}}),
    "hsdp": (4, {"parallel": {"strategy": "hsdp"}}),
    "tensor": (2, {"parallel": {"tensor": 2}}),
    "ddp x tensor": (4, {"parallel": {"tensor": 2}}),
    "fsdp x tensor": (4, {"parallel": {"strategy": "fsdp", "tensor": 2}}),
    "hsdp x tensor": (8, {"parallel": {"replicate": 2, "shard": 2, "tensor": 2}}),
    "gpipe": (2, {"parallel": {"pipeline": 2, "schedule": "gpipe"}, "accumulate": 2}),
    "1f1b": (4, {"parallel": {"pipeline": 4}, "accumulate": 4}),
    "ddp x gpipe": (4, {"parallel": {"pipeline": 2, "schedule": "gpipe"}, "accumulate": 2}),
    "ddp x 1f1b": (4, {"parallel": {"pipeline": 2}, "accumulate": 4}),
    "fsdp x 1f1b": (4, {"parallel": {"pipeline": 2, "strategy": "fsdp"}, "accumulate": 2}),
    "fsdp x tensor x 1f1b": (8, {"parallel": {"pipeline": 2, "strategy": "fsdp", "tensor": 2}, "accumulate": 2}),
    "ddp, accumulated": (2, {"accumulate": 4}),
    "fsdp, accumulated": (2, {"parallel": {"strategy": "fsdp"}, "accumulate": 4}),
    "hsdp, accumulated": (4, {"parallel": {"strategy": "hsdp"}, "accumulate": 2}),
    "fsdp x tensor, accumulated": (4, {"parallel": {"strategy": "fsdp", "tensor": 2}, "accumulate": 2}),
    "ddp, recomputed": (2, {"activationCheckpointing": "full"}),
    "fsdp, recomputed in part": (2, {"parallel": {"strategy": "fsdp"}, "activationCheckpointing": "selective"}),
    "one process, accumulated": (1, {"accumulate": 4}),
    "data-parallel": (1, {"parallel": {"strategy": "data-parallel"}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_parallelism_learns_what_one_process_learns(form: str, alone: list[tuple[float, float]]) -> None:
    world_size, settings = FORMS[form]
    for found in run(curve, world_size, {"clipNorm": CLIP, **settings}):
        assert found == [pytest.approx(step, rel=TOLERANCE) for step in alone]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_compiled_model_learns_the_same(alone: list[tuple[float, float]]) -> None:
    """Compilation takes a minute or two where nothing is cached."""
    settings = {"parallel": {"strategy": "fsdp"}, "compile": True, "activationCheckpointing": "selective"}
    for found in run(curve, 2, {"clipNorm": CLIP, **settings}, timeout=500):
        assert found == [pytest.approx(step, rel=TOLERANCE) for step in alone]
