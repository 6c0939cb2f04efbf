"""One optimizer step: synchronised once, in mixed precision, and with a gradient that is not finite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rankzero.errors import DivergedError
from rankzero.train.gpt import gpt, tensor_plan
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import groups
from rankzero.train.parallel.step import Finished, Step
from rankzero.train.sharding import local
from tests.trainer.parallel_models import MODEL, batch, loss, prepared
from tests.trainer.ranks import run

pytestmark = pytest.mark.timeout(400)  # eight ranks on two busy cores have needed a minute

FORMS = {"ddp": {}, "fsdp": {"parallel": {"strategy": "fsdp"}}}


def small(rank: int, settings: dict[str, Any], **more: Any) -> tuple[nn.Module, Step]:
    """One layer in the form that the settings name, and its step."""
    config, mesh = prepared(rank, settings)
    model = parallelize(nn.Linear(4, 2), mesh, config)
    return model, Step(model, torch.optim.SGD(model.parameters(), 0.1), mesh, config, **more)


def make_step(step: Step, model: nn.Module, inputs: Tensor) -> Finished:
    with step.micro():
        step.backward(model(inputs).square().mean())
    return step.finish()


def weights(model: nn.Module) -> list[Tensor]:
    return [local(parameter).detach().clone() for parameter in model.parameters()]


def gradients_on_the_way(rank: int, settings: dict[str, Any]) -> list[list[list[float]]]:
    """What this rank's parameters have as their gradients after each of two micro-batches."""
    model, step = small(rank, {**settings, "accumulate": 2})
    found = []
    for number in range(2):
        with step.micro():
            step.backward(model(torch.full((3, 4), float(rank + number + 1))).square().mean())
        found.append([local(p.grad).flatten().tolist() for p in model.parameters() if p.grad is not None])
    return found


@pytest.mark.slow
def test_gradients_of_replicas_are_exchanged_once_in_a_step() -> None:
    first, second = run(gradients_on_the_way, 2, FORMS["ddp"])
    assert first[0] != second[0]
    assert first[1] == second[1]


@pytest.mark.slow
def test_gradients_of_shards_are_exchanged_once_in_a_step() -> None:
    for before, after in run(gradients_on_the_way, 2, FORMS["fsdp"]):
        assert before == []  # they lie beside the parameters until then
        assert len(after) == 2


class Branches(nn.Module):
    """A model that uses half of its parameters in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
        self.chosen = 0

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.branches[self.chosen](inputs)
        return result


def steps_through_branches(rank: int, find: bool) -> str:
    """Two steps, each through another branch, different ones on the two ranks."""
    config, mesh = prepared(rank, {"parallel": {"findUnusedParameters": find}})
    branches = Branches()
    model = parallelize(branches, mesh, config)
    step = Step(model, torch.optim.SGD(model.parameters(), 0.1), mesh, config)
    for number in range(2):
        branches.chosen = (rank + number) % 2
        try:
            make_step(step, model, torch.ones(3, 4))
        except RuntimeError as error:
            return str(error)
    return str([parameter.tolist() for parameter in model.parameters()])


@pytest.mark.slow
def test_a_model_that_leaves_out_branches_is_trained_where_that_is_said() -> None:
    first, second = run(steps_through_branches, 2, True)
    assert first == second
    assert "unused" not in first
    assert all("find_unused_parameters" in text for text in run(steps_through_branches, 2, False))


def weights_and_outcome_with_nan(rank: int, settings: dict[str, Any]) -> tuple[bool, list[bool], bool, str]:
    """Two steps in which rank 1 has NaN, one without, and NaN until the limit."""
    limit = {"nonFinite": {"action": "skip", "limit": 3}}
    model, step = small(rank, {**settings, **limit})
    bad, good = torch.full((3, 4), torch.nan if rank == 1 else 1.0), torch.ones(3, 4)
    before = weights(model)
    skipped = [make_step(step, model, bad).skipped for _ in range(2)]
    unchanged = all(map(torch.equal, weights(model), before))
    skipped.append(make_step(step, model, good).skipped)
    learnt = not all(map(torch.equal, weights(model), before))
    skipped += [make_step(step, model, bad).skipped for _ in range(3)]
    with pytest.raises(DivergedError) as caught:
        make_step(step, model, bad)
    return unchanged, skipped, learnt, caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_nan_on_one_rank_skips_the_step_on_all_and_ends_the_run_on_all_at_the_limit(form: str) -> None:
    message = "the norm of the gradient is nan in 4 steps in a row, the loss "
    for unchanged, skipped, learnt, text in run(weights_and_outcome_with_nan, 2, FORMS[form]):
        assert unchanged
        assert skipped == [True, True, False, True, True, True]
        assert learnt
        assert text.startswith(message)


def stops_at_once(rank: int) -> str:
    model, step = small(rank, {})
    with pytest.raises(DivergedError) as caught:
        make_step(step, model, torch.full((3, 4), torch.inf if rank == 0 else 1.0))
    return caught.value.hint


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_ends_the_run_on_all_ranks_unless_the_settings_say_otherwise() -> None:
    for hint in run(stops_at_once, 2):
        assert "train.nonFinite.action: skip" in hint


def scales(rank: int, settings: dict[str, Any]) -> tuple[list[float], list[bool], list[float]]:
    """The loss scale after each of three steps, the second of which overflows on rank 1; and the norms."""
    config, mesh = prepared(rank, settings)
    model = parallelize(nn.Linear(4, 2), mesh, config)
    # fp16 itself needs a GPU; the scaler does not.
    half, _ = prepared(rank, {**settings, "precision": "fp16"})
    step = Step(model, torch.optim.SGD(model.parameters(), 0.1), mesh, half)
    assert step.scaler is not None
    found, skipped, norms = [], [], []
    for number in range(3):
        done = make_step(step, model, torch.full((3, 4), 1e37 if number == rank == 1 else 1.0))
        found.append(step.scaler.get_scale())
        skipped.append(done.skipped)
        norms.append(done.norm)
    return found, skipped, norms


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_overflow_on_one_rank_halves_the_scale_on_all_and_is_no_failure(form: str) -> None:
    plain = run(norm_without_scale, 2, FORMS[form])[0]
    for scale, skipped, norms in run(scales, 2, FORMS[form]):
        assert scale == [65536.0, 32768.0, 32768.0]
        assert skipped == [False, True, False]
        assert norms[0] == pytest.approx(plain, rel=1e-6)  # of the gradient as it is, not as it was scaled


def norm_without_scale(rank: int, settings: dict[str, Any]) -> float:
    model, step = small(rank, settings)
    return make_step(step, model, torch.ones(3, 4)).norm


def losses(rank: int, settings: dict[str, Any]) -> tuple[list[float], set[torch.dtype]]:
    """Five losses of the bundled GPT, and the types of its weights."""
    config, mesh = prepared(rank, settings)
    torch.manual_seed(0)
    model = parallelize(gpt(**MODEL), mesh, config, plan=tensor_plan())
    step = Step(model, torch.optim.AdamW(model.parameters(), 1e-2), mesh, config, loss=loss)
    found = []
    for number in range(5):
        step.run(*batch(number, 4))
        found.append(step.finish().loss)
    return found, {parameter.dtype for parameter in model.parameters()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [{}, {"parallel": {"strategy": "fsdp"}}, {"parallel": {"pipeline": 2}, "accumulate": 2}], ids=str
)
def test_bf16_learns_nearly_the_same_with_weights_that_stay_fp32(form: dict[str, Any]) -> None:
    """bfloat16 has 8 bits of mantissa, so a number is off by up to 0.4 %; losses near 5.6 are sums of many of them."""
    exact, _ = run(losses, 2, form)[0]
    for found, types in run(losses, 2, {**form, "precision": "bf16"}):
        assert types == {torch.float32}
        assert found != exact
        assert found == pytest.approx(exact, rel=0.02)


def one_micro_batch_of_two(rank: int) -> None:
    model, step = small(rank, {"accumulate": 2})
    make_step(step, model, torch.ones(3, 4))


@pytest.mark.slow
def test_a_step_with_too_few_micro_batches_is_no_step() -> None:
    with pytest.raises(AssertionError, match=r"finish\(\) after 1 micro-batches, train.accumulate is 2"):
        run(one_micro_batch_of_two, 1)


def two_losses(rank: int) -> list[float]:
    """What steps come to that have two backward passes, in each of two micro-batches, and then none at all."""
    model, step = small(rank, {"accumulate": 2})
    for _ in range(2):
        with step.micro():
            for part in (2.0, 4.0):
                step.backward(model(torch.ones(1, 4)).sum() * 0 + part)
    first = step.finish().loss
    for _ in range(2):
        with step.micro():
            pass
    return [first, step.finish().loss]


@pytest.mark.slow
def test_the_loss_of_a_step_is_that_of_all_its_backward_passes_and_of_no_earlier_step() -> None:
    assert run(two_losses, 1) == [[6.0, 0.0]]


def draws(rank: int, settings: dict[str, Any]) -> float:
    config, mesh = prepared(rank, settings)
    parallelize(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), mesh, config)
    return float(torch.rand(()))


@pytest.mark.slow
def test_ranks_that_work_on_the_same_samples_draw_the_same_numbers_and_others_do_not() -> None:
    """Dropout of a layer that is not split must drop the same on each rank of a tensor group."""
    found = run(draws, 4, {"parallel": {"pipeline": 2}})
    assert found[0] == found[2] != found[1] == found[3]


def time_limits(rank: int, settings: dict[str, Any]) -> list[set[float]]:
    """Seconds that collectives of any group may take, before and after the first step."""
    config, mesh = prepared(rank, {"timeout": {"firstStep": 1200, "step": 300}, **settings})
    model = parallelize(nn.Linear(4, 2), mesh, config)
    step = Step(model, torch.optim.SGD(model.parameters(), 0.1), mesh, config)
    cpu = torch.device("cpu")

    def limits(those: Iterable[dist.ProcessGroup]) -> set[float]:
        return {group._get_backend(cpu).options._timeout.total_seconds() for group in those}

    before = limits(mesh.get_all_groups())
    make_step(step, model, torch.ones(3, 4))
    return [before, limits(groups(mesh))]


@pytest.mark.slow
@pytest.mark.parametrize("form", [{}, {"parallel": {"replicate": 2, "shard": 2}}], ids=str)
def test_the_first_step_may_take_long_and_the_next_ones_may_not(form: dict[str, Any]) -> None:
    """Known failure A6: hours burned before a hang is noticed. Where the launcher watches, its limit stays."""
    for before, after in run(time_limits, 4, form):
        assert before == {1200.0}
        assert after == {300.0}
