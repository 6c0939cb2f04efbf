"""What bench.checkpoint makes of its measurements, and that each way it compares saves something."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from bench.checkpoint.__main__ import targets
from bench.checkpoint.methods import METHODS


def test_targets_are_shares_of_the_synchronous_way_and_of_the_default_interval() -> None:
    ours = {"blocked_s": 0.05, "extra_s": 3.0}
    found = targets({"1 GB": {"step_s": 2.0, "methods": {"rankzero": ours, "dcp.save": {"blocked_s": 2.0}}}})
    share, cost = found.values()
    assert share == {"value": 0.025, "target": 0.05, "met": True}
    assert cost == {"value": 0.015, "target": 0.01, "met": False}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("name", METHODS)
def test_each_way_leaves_a_checkpoint_of_the_whole_state(tmp_path: Path, name: str) -> None:
    model = nn.Linear(100, 100)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 100)).sum().backward()
    optimizer.step()
    method = METHODS[name](tmp_path / "state", model, optimizer)
    method.save(1)
    method.save(2)
    method.finish()
    assert not method.is_writing
    size = sum(file.stat().st_size for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert size > 3 * 4 * 100 * 101
