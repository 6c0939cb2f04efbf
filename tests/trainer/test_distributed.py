"""A rank leaves its process group without waiting for anybody."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from rankzero.config import TrainConfig
from rankzero.train.distributed import process_group


def group_threads() -> int:
    """Threads of gloo groups in this process; a group's destructor ends its own."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return names.count("pt_gloo_runloop")


def test_a_gloo_group_is_left_and_not_destroyed_since_its_destructor_can_wait_for_ever() -> None:
    """Known failure A5: a rank that hangs at its exit holds up the whole group."""
    before = group_threads()
    with process_group(TrainConfig(backend="gloo")):
        dist.all_reduce(torch.ones(1))
    assert not dist.is_initialized()
    assert group_threads() > before
