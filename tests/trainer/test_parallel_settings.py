"""Settings that do not fit the model or the machine: each is an error with the key, its value and what is allowed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel

from rankzero.config import TrainConfig, parse
from rankzero.errors import ConfigError
from rankzero.train.gpt import gpt
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.blocks import block_types, blocks_of
from rankzero.train.parallel.pipeline import Pipeline, cuts
from rankzero.train.schedule import factor, scaled_learning_rate
from tests.trainer.parallel_models import MODEL, prepared
from tests.trainer.ranks import run

pytestmark = pytest.mark.timeout(400)  # eight ranks on two busy cores have needed a minute


def refusal(rank: int, settings: dict[str, Any], model: str, plan: str) -> tuple[str, str]:
    """The message and the hint that every rank gets."""
    config, mesh = prepared(rank, settings)
    models: dict[str, Callable[[], nn.Module]] = {
        "gpt": lambda: gpt(**MODEL),
        "layer": lambda: nn.Linear(6, 6),
        "sequence": lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4)),
    }
    split = ColwiseParallel()
    plans = {"": None, "first": {"0": split}, "none such": {"block*.attention": split}}
    with pytest.raises(ConfigError) as caught:
        Pipeline(parallelize(models[model](), mesh, config, plan=plans[plan]), mesh, config, nn.MSELoss())
    return caught.value.message, caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "model", "plan", "message", "hint"),
    [
        ({"precision": "fp16"}, "layer", "", "train.precision is fp16 and the ranks compute on the CPU", "fp32, bf16"),
        ({"parallel": {"pipeline": 2}}, "layer", "", "train.parallel.pipeline is 2 and Linear is no", "Sequential"),
        ({"parallel": {"pipeline": 2}}, "gpt", "", "train.accumulate is 1 and train.parallel.pipeline 2", "2 or more"),
        ({"parallel": {"tensor": 2}}, "layer", "", "train.parallel.tensor is 2 and the script gives no plan", "1; or"),
        ({"parallel": {"tensor": 2}}, "gpt", "none such", "the tensor plan names block*.attention", "embedding"),
        ({"parallel": {"tensor": 2}}, "sequence", "first", "2, which does not divide the 5 of 0.weight", "1, 5"),
    ],
)
def test_a_setting_that_does_not_fit_the_model_is_refused_on_every_rank(
    settings: dict[str, Any], model: str, plan: str, message: str, hint: str
) -> None:
    for found, allowed in run(refusal, 2, settings, model, plan):
        assert message in found
        assert hint in allowed


def in_one_process(rank: int) -> str:
    config, mesh = prepared(rank, {"parallel": {"strategy": "data-parallel"}, "precision": "bf16"})
    with pytest.raises(ConfigError) as caught:
        parallelize(nn.Linear(2, 2), mesh, config)
    return str(caught.value)


@pytest.mark.slow
def test_data_parallel_refuses_what_it_would_not_copy() -> None:
    [text] = run(in_one_process, 1)
    assert "train.precision is bf16 and train.parallel.strategy data-parallel" in text


def too_many_stages(rank: int) -> str:
    config, mesh = prepared(rank, {"parallel": {"pipeline": 3}, "accumulate": 3})
    with pytest.raises(ConfigError) as caught:
        parallelize(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4)), mesh, config)
    return str(caught.value)


@pytest.mark.slow
def test_more_stages_than_layers_are_refused() -> None:
    for text in run(too_many_stages, 3):
        assert "train.parallel.pipeline is 3 and the model has 2 layers\n  fix: allowed for this model: 1 to 2" in text


def test_an_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"train.parallel.strategy is 'zero'") as caught:
        parse(TrainConfig, {"parallel": {"strategy": "zero"}}, "train")
    assert caught.value.hint == "allowed: auto, ddp, fsdp, hsdp, data-parallel"


def test_a_model_cannot_be_compiled_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankzero.train.parallel import apply

    monkeypatch.setenv("PATH", "/none")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ConfigError, match=r"train\.compile is true and the image has no C compiler"):
        apply._compile([nn.Linear(1, 1)])


def test_blocks_are_what_a_model_repeats() -> None:
    model = gpt(**MODEL)
    assert [type(block).__name__ for block in blocks_of(model, block_types(model))] == ["Block"] * 3
    assert block_types(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))) == set()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.data())
def test_stages_are_all_layers_in_their_order_none_empty_and_as_even_as_can_be(weights: list[int], data: Any) -> None:
    stages = data.draw(st.integers(1, len(weights)))
    found = cuts(weights, stages)
    assert len(found) == stages
    assert found[0][0] == 0
    assert found[-1][1] == len(weights)
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(found))
    assert all(begin < end for begin, end in found)
    heaviest = max(sum(weights[begin:end]) for begin, end in found)
    assert heaviest == lightest_possible(weights, stages)


def lightest_possible(weights: list[int], stages: int) -> int:
    """By trying everything: the best of all first cuts."""
    best = [[0 if not rest else math.inf for rest in range(len(weights) + 1)]]
    for _ in range(stages):
        best.append(
            [
                min(
                    (max(sum(weights[len(weights) - n : len(weights) - m]), best[-1][m]) for m in range(n)),
                    default=math.inf,
                )
                for n in range(len(weights) + 1)
            ]
        )
    return int(best[-1][-1])


@pytest.mark.parametrize(("rule", "rate"), [("linear", 0.8), ("sqrt", 0.1 * 8**0.5), ("none", 0.1)])
def test_the_learning_rate_grows_with_the_micro_batches_of_a_step(rule: str, rate: float) -> None:
    config = parse(TrainConfig, {"learningRate": 0.1, "lrScaling": rule, "accumulate": 2}, "train")
    assert scaled_learning_rate(config, 4) == pytest.approx(rate)


@given(st.integers(0, 30), st.integers(1, 100), st.sampled_from(["none", "cosine"]))
def test_the_learning_rate_rises_and_then_never_rises_again(warmup: int, total: int, decay: str) -> None:
    config = parse(TrainConfig, {"warmupSteps": warmup, "lrDecay": decay}, "train")
    factors = [factor(config, step, total) for step in range(max(total, warmup) + 1)]
    assert all(0 <= value <= 1 for value in factors)
    assert factors[0] > 0
    assert factors[: warmup + 1] == sorted(factors[: warmup + 1])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    assert factors[warmup] == 1
