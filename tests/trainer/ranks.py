"""Run a function on several gloo ranks: real processes, a file store, a time limit, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist


def on_ranks(
    function: Callable[..., Any], world_size: int, tmp_path: Path, *args: Any, timeout: float = 60
) -> list[Any]:
    """Call ``function(rank, *args)`` on every rank of a gloo group; returns what each returned, by rank."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed"])
    answers = context.Queue()
    store = tmp_path / f"store-{os.urandom(4).hex()}"
    processes = [
        context.Process(target=_one_rank, args=(function, rank, world_size, str(store), answers, args))
        for rank in range(world_size)
    ]
    try:
        for process in processes:
            process.start()
        found = dict(answers.get(timeout=timeout) for _ in processes)
    finally:
        for process in processes:
            process.kill()
            process.join()
    problems = [value for value in found.values() if isinstance(value, _Problem)]
    assert not problems, problems[0]
    return [found[rank] for rank in range(world_size)]


class _Problem(str):
    """A traceback of a rank."""


def _one_rank(function: Callable[..., Any], rank: int, world_size: int, store: str, answers: Any, args: Any) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
        answers.put((rank, function(rank, *args)))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, _Problem(traceback.format_exc())))
    answers.close()
    answers.join_thread()
