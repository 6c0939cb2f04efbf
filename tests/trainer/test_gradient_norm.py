"""The norm of a gradient of which ranks hold addends, beside parts and copies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.step import Step
from tests.trainer.parallel_models import prepared
from tests.trainer.ranks import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Layer(nn.Module):
    """(batch, length, 4) -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.up(self.norm(x)).relu())
        return out


PLAN: dict[str, ParallelStyle] = {
    "0": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),)),
    "0.norm": SequenceParallel(),
    "0.up": ColwiseParallel(input_layouts=Shard(1)),
    "0.down": RowwiseParallel(output_layouts=Replicate()),
}


def layer_and_input() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(Layer()).double(), torch.randn(2, 4, 4).double()


def norms(rank: int, settings: dict[str, object]) -> list[float]:
    """Of two steps with a large rate, so that a gradient that is applied wrongly shows in the second."""
    config, mesh = prepared(rank, settings)
    plain, inputs = layer_and_input()
    model = parallelize(plain, mesh, config, plan=PLAN)
    step = Step(model, torch.optim.SGD(model.parameters(), 0.5), mesh, config)
    found = []
    for _ in range(2):
        with step.micro():
            step.backward(model(inputs).square().mean())
        found.append(step.finish().norm)
    return found


@pytest.mark.parametrize("form", [{"tensor": 2}, {"tensor": 2, "strategy": "fsdp"}], ids=str)
def test_layers_that_are_split_along_the_sequence_count_with_the_sum_of_all_ranks(form: dict[str, object]) -> None:
    """Without FSDP their gradients stay addends, one on each rank."""
    model, inputs = layer_and_input()
    optimizer, expected = torch.optim.SGD(model.parameters(), 0.5), []
    for _ in range(2):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        expected.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
    world_size = 4 if "strategy" in form else 2
    for found in run(norms, world_size, {"parallel": form, "clipNorm": 0.5}):
        assert found == pytest.approx(expected, rel=1e-6)  # as exact as the epsilon of clipping
