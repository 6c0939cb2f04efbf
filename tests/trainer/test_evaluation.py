"""Every form of parallelism judges a model as one process does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankzero.errors import DataError
from rankzero.train.gpt import gpt, tensor_plan
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.evaluation import evaluate
from rankzero.train.parallel.mesh import data_ranks
from tests.trainer.parallel_models import MODEL, batch, prepared
from tests.trainer.ranks import run

pytestmark = pytest.mark.timeout(400)

SAMPLES = 11
"""No multiple of any number of ranks: some have a batch more than others, and some a shorter one."""
FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp": (2, {}),
    "hsdp": (4, {"strategy": "hsdp"}),
    "fsdp x tensor": (4, {"strategy": "fsdp", "tensor": 2}),
    "pipeline": (3, {"pipeline": 3}),
    "fsdp x pipeline": (4, {"pipeline": 2, "strategy": "fsdp"}),
}


def error_and_count(logits: Tensor, following: Tensor) -> Tensor:
    """Sum of the losses, and how many there are."""
    error = F.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="sum")
    return torch.stack([error, torch.tensor(float(following.numel()), dtype=error.dtype)])


def judged(rank: int, parallel: dict[str, Any], samples: int, precision: str = "fp32") -> tuple[list[float], bool]:
    """What ``evaluate`` finds in batches of two, and whether the model trains on afterwards."""
    settings = {"parallel": parallel, "precision": precision, "accumulate": parallel.get("pipeline", 1)}
    config, mesh = prepared(rank, settings)
    torch.manual_seed(0)
    plain = gpt(**MODEL)
    model = parallelize(plain.double() if precision == "fp32" else plain, mesh, config, plan=tensor_plan())
    part, parts = data_ranks(mesh)
    mine = [torch.split(whole[part::parts], 2) for whole in batch(0, samples)]
    found = evaluate(model, mesh, zip(*mine, strict=True), error_and_count)
    return found.tolist(), model.training


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_parallelism_judges_each_sample_once_as_one_process_does(form: str) -> None:
    torch.manual_seed(0)
    inputs, targets = batch(0, SAMPLES)
    with torch.no_grad():
        alone = error_and_count(gpt(**MODEL).double()(inputs), targets).tolist()
    world_size, parallel = FORMS[form]
    for found, trains in run(judged, world_size, parallel, SAMPLES):
        assert found == pytest.approx(alone, rel=1e-9)  # sums in another order
        assert trains


@pytest.mark.slow
def test_stages_hand_on_what_they_compute_with_16_bits() -> None:
    for found, _ in run(judged, 2, {"pipeline": 2}, SAMPLES, "bf16"):
        assert found[0] / found[1] == pytest.approx(5.6, abs=0.3)  # ln 256 = 5.5, and what random logits add to it


def modes(rank: int) -> list[bool]:
    """Of the model and its layers, one of which is frozen, during an evaluation and after it."""
    config, mesh = prepared(rank, {})
    model = parallelize(nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval()), mesh, config)
    found: list[bool] = []
    model.register_forward_hook(lambda *_: found.extend(layer.training for layer in model.modules()))
    evaluate(model, mesh, [(torch.ones(3, 2), torch.ones(3))], lambda outputs, _: outputs.sum())
    return found + [layer.training for layer in model.modules()]


def test_layers_that_a_script_has_frozen_stay_so_after_an_evaluation() -> None:
    assert run(modes, 1) == [[False, False, False, True, True, False]]


def refused(rank: int) -> str:
    config, mesh = prepared(rank, {})
    model = parallelize(gpt(**MODEL), mesh, config)
    with pytest.raises(DataError) as caught:
        evaluate(model, mesh, [batch(0, 1)] if rank == 0 else [], error_and_count)
    return str(caught.value)


@pytest.mark.slow
def test_a_rank_without_a_batch_is_an_error_on_all_ranks() -> None:
    some, none = run(refused, 2)
    assert "not every rank has a batch to evaluate, rank 0 has some" in some
    assert "rank 1 has none" in none
