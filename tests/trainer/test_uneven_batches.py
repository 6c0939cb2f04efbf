"""Batches that train.accumulate does not divide, as the last of an epoch: each sample of a rank counts alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankzero.errors import ConfigError
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.step import Step
from tests.trainer.parallel_models import prepared
from tests.trainer.ranks import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


def model_of_two() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).double()


def samples(rank: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(count, 4, generator=generator).double(), torch.zeros(count, 2).double()


def steps(rank: int, settings: dict[str, Any], counts: list[int]) -> list[tuple[float, float]]:
    """Loss and norm of steps with so many samples, ``counts[i][rank]`` each."""
    config, mesh = prepared(rank, settings)
    model = parallelize(model_of_two(), mesh, config)
    step = Step(model, torch.optim.SGD(model.parameters(), 0.0), mesh, config, loss=squares)
    found = []
    for count in counts:
        step.run(*samples(rank, count))
        done = step.finish()
        found.append((done.loss, done.norm))
    return found


def plain(*parts: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Of the mean of the parts' means, in a loop without any of this."""
    model = model_of_two()
    loss = torch.stack([squares(model(inputs), targets) for inputs, targets in parts]).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def test_each_sample_counts_alike_whatever_their_number() -> None:
    counts = [8, 10, 9, 3, 1]
    [found] = run(steps, 1, {"accumulate": 4}, counts)
    assert found == [pytest.approx(plain(samples(0, count)), rel=1e-9) for count in counts]


def one_less_on_rank_1(rank: int, settings: dict[str, Any]) -> list[tuple[float, float]]:
    return steps(rank, settings, [2 - rank])


@pytest.mark.parametrize("form", [{}, {"parallel": {"strategy": "fsdp"}}], ids=str)
def test_a_rank_with_fewer_samples_than_micro_batches_makes_as_many_passes(form: dict[str, Any]) -> None:
    """A sharded model is gathered in each of them, by all ranks."""
    found = run(one_less_on_rank_1, 2, {**form, "accumulate": 2})
    _, norm = plain(samples(0, 2), samples(1, 1))
    assert [answer[0][1] for answer in found] == pytest.approx([norm, norm], rel=1e-9)


def refusals(rank: int, counts: list[int]) -> str:
    with pytest.raises(ConfigError) as caught:
        steps(rank, {"parallel": {"pipeline": 2}, "accumulate": 2}, counts)
    return f"{caught.value.message}; {caught.value.hint}"


@pytest.mark.parametrize(("counts", "said"), [([8, 6], "a step of 6 samples"), ([5], "a step of 5 samples")], ids=str)
def test_a_pipeline_refuses_a_batch_of_another_size_by_name(counts: list[int], said: str) -> None:
    """Its stages agree on shapes once; otherwise all ranks would wait for each other for ever."""
    for text in run(refusals, 2, counts):
        assert said in text
        assert "dropLast: true" in text
