"""Optimizers as scripts have them: with no state yet, with none ever, one for several models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rankzero.config import CheckpointConfig
from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import Checkpoints


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: Iterable[int]) -> list[Tensor]:
    """The weights after these steps."""
    for step in steps:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def adam() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return model, torch.optim.AdamW(model.parameters(), 0.1)


def test_a_save_before_the_first_step_changes_nothing_of_what_follows(tmp_path: Path) -> None:
    """torch asks an optimizer without state for a step that makes one, which Adam's bias correction would count."""
    expected = trained(*adam(), range(3))
    for attempt in range(2):
        model, optimizer = adam()
        checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=False))
        checkpoints.track(model=model, optimizer=optimizer)
        assert checkpoints.resume() == 0
        if attempt == 0:
            checkpoints.save(0)
        assert all(map(torch.equal, trained(model, optimizer, range(3)), expected)), attempt


def test_an_optimizer_without_state_makes_no_step_at_a_save(tmp_path: Path) -> None:
    """Its gradients would be all zero and as large as the model."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=False))
    checkpoints.track(model=model, optimizer=optimizer)
    trained(model, optimizer, range(1))
    steps: list[object] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(None))
    checkpoints.save(1)
    assert not steps
    again = Checkpoints(tmp_path)
    other = nn.Linear(4, 2)
    again.track(model=other, optimizer=torch.optim.SGD(other.parameters(), 0.25))
    assert again.resume() == 1
    assert again.tracked.optimizers["optimizer"].param_groups[0]["lr"] == 0.5


def test_one_optimizer_for_two_models_goes_on(tmp_path: Path) -> None:
    def make() -> tuple[Checkpoints, nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        encoder, head = nn.Linear(4, 3), nn.Linear(3, 2)
        optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], 0.1)
        checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=False))
        checkpoints.track(encoder=encoder, head=head, optimizer=optimizer)
        return checkpoints, nn.Sequential(encoder, head), optimizer

    checkpoints, model, optimizer = make()
    trained(model, optimizer, range(2))
    checkpoints.save(2)
    expected = trained(model, optimizer, range(2, 4))
    checkpoints, model, optimizer = make()
    assert checkpoints.resume() == 2
    assert all(map(torch.equal, trained(model, optimizer, range(2, 4)), expected))


def test_an_optimizer_with_parameters_of_no_tracked_model_is_refused(tmp_path: Path) -> None:
    encoder, head = nn.Linear(4, 3), nn.Linear(3, 2)
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match="'optimizer' has parameters of no tracked module"):
        checkpoints.track(encoder=encoder, optimizer=torch.optim.SGD([*encoder.parameters(), *head.parameters()], 0.1))
