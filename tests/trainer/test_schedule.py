"""The schedule of the learning rate over a resume: where it was, with the settings as they are now."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from rankzero.config import CheckpointConfig, TrainConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.schedule import scaled_learning_rate, schedule

TOTAL = 20


def rates(folder: Path, config: TrainConfig, until: int, data_ranks: int = 1) -> list[float]:
    """Of the steps that are made until ``until``, in a run that goes on where its last checkpoint was."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), scaled_learning_rate(config, data_ranks), momentum=0.9)
    steps = schedule(optimizer, config, TOTAL)
    checkpoints = Checkpoints(folder, CheckpointConfig(asynchronous=False))
    checkpoints.track(model=model, optimizer=optimizer, schedule=steps)
    found = []
    for _ in range(checkpoints.resume(), until):
        model(torch.ones(1, 2)).sum().backward()
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        steps.step()
    checkpoints.save(until)
    return found


CONFIG = TrainConfig(learning_rate=0.1, warmup_steps=4)


def test_a_resumed_run_goes_on_with_the_same_rates_to_the_last_bit(tmp_path: Path) -> None:
    whole = rates(tmp_path / "whole", CONFIG, TOTAL)
    assert [rate for until in (3, 9, TOTAL) for rate in rates(tmp_path / "parts", CONFIG, until)] == whole


@pytest.mark.parametrize(
    ("settings", "data_ranks"),
    [(TrainConfig(learning_rate=0.4, warmup_steps=4), 1), (CONFIG, 4)],
    ids=["rate", "ranks"],
)
def test_a_rate_or_a_number_of_ranks_that_was_changed_counts_from_the_resume_on(
    tmp_path: Path, settings: TrainConfig, data_ranks: int
) -> None:
    """LambdaLR and the optimizer bring back those that they were saved with, silently."""
    whole = rates(tmp_path / "whole", CONFIG, TOTAL)
    rates(tmp_path / "parts", CONFIG, 9)
    later = rates(tmp_path / "parts", settings, TOTAL, data_ranks)
    assert later == pytest.approx([4 * rate for rate in whole[9:]])


def test_on_another_number_of_ranks_it_falls_to_0_at_the_end_that_is_left() -> None:
    """With more ranks an epoch has fewer steps, and the rate would be 0 before the data is read."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    steps = schedule(optimizer, TrainConfig(), 10)
    steps.load_state_dict({"last_epoch": 12})
    assert optimizer.param_groups[0]["lr"] == 0
    steps.end_at(16)
    assert 0.01 < optimizer.param_groups[0]["lr"] < 0.02
    for _ in range(4):
        optimizer.step()
        steps.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0)
