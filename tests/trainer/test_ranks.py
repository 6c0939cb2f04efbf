"""The harness of the tests with several ranks: what fails is shown, and nobody is waited for in vain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.trainer.ranks import run

pytestmark = pytest.mark.timeout(400)  # eight ranks on two busy cores have needed a minute


def total(rank: int, more: int) -> int:
    tensor = torch.tensor(rank + more)
    dist.all_reduce(tensor)
    return int(tensor)


def threads_of_parent(_rank: int) -> int:
    return len(list(Path(f"/proc/{os.getppid()}/task").iterdir()))


def one_raises(rank: int) -> None:
    if rank == 1:
        raise ValueError("said by one")
    dist.barrier()


def one_ends(rank: int) -> None:
    if rank == 1:
        os._exit(3)
    dist.barrier()


def one_hangs(rank: int) -> None:
    if rank == 0:
        os.read(os.pipe()[0], 1)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 8])
def test_every_rank_answers(world_size: int) -> None:
    assert run(total, world_size, 1) == [world_size * (world_size + 1) // 2] * world_size


@pytest.mark.slow
def test_ranks_are_forked_from_a_process_without_threads() -> None:
    assert run(threads_of_parent, 1) == [1]


@pytest.mark.slow
def test_the_traceback_of_a_rank_that_fails_is_shown() -> None:
    with pytest.raises(AssertionError, match=r"(?s)rank 1: Traceback.*ValueError: said by one"):
        run(one_raises, 2)


@pytest.mark.slow
def test_a_rank_that_just_ends_is_named() -> None:
    with pytest.raises(AssertionError, match="rank 1: it ended without an answer"):
        run(one_ends, 2)


@pytest.mark.slow
def test_a_rank_that_hangs_shows_where() -> None:
    with pytest.raises(AssertionError, match=r"(?s)rank 0: .*in one_hangs"):
        run(one_hangs, 2, timeout=20)
