"""Run a function on several gloo ranks: forked from one process that has imported PyTorch, nothing left behind."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch.distributed as dist

PRELOAD = [
    "torch._dynamo",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.optim",
]
"""What takes seconds to import, optimizers and DTensors at their first use included. None of it starts a thread."""
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A process with threads must not be forked, and ranks share the cores of the machine anyway."""
GRACE = 5.0
"""Seconds for the other ranks to end after one has failed; most of them wait for it in a collective, for ever."""


def run(function: Callable[..., Any], world_size: int, *args: Any, timeout: float = 250) -> list[Any]:
    """Call ``function(rank, *args)`` on every rank of a gloo group; returns what each returned, by rank.

    ``function`` stands at the top level of a module. Fails with the traceback of every rank that raised, the exit
    status of every one that ended otherwise, and, after ``timeout`` seconds, with the stacks of those that hang.
    """
    os.environ.update(SINGLE_THREADED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(world_size)]
        processes = [
            context.Process(target=_one_rank, args=(function, args, rank, world_size, folder, timeout, pipe))
            for rank, (_, pipe) in enumerate(pipes)
        ]
        try:
            for process, (_, theirs) in zip(processes, pipes, strict=True):
                process.start()
                theirs.close()  # so that the end of a rank is the end of its pipe
            answers = _collect([ours for ours, _ in pipes], timeout + 2 * GRACE)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
        problems = [
            f"rank {rank}: {answer}{_stacks(folder, rank)}"
            for rank, answer in enumerate(answers)
            if isinstance(answer, _Problem)
        ]
    assert not problems, "\n".join(problems)
    return answers


class _Problem(str):
    """Why a rank has no answer."""


def _collect(pipes: list[Connection], timeout: float) -> list[Any]:
    answers: list[Any] = [_Problem("it was still busy when another rank had failed")] * len(pipes)
    deadline = time.monotonic() + timeout
    waiting = set(pipes)
    while waiting and (ready := wait(list(waiting), timeout=max(deadline - time.monotonic(), 0))):
        for pipe in ready:
            assert isinstance(pipe, Connection)
            waiting.remove(pipe)
            try:
                answer = pipe.recv()
            except EOFError:
                answer = _Problem("it ended without an answer")
            answers[pipes.index(pipe)] = answer
            if isinstance(answer, _Problem):
                deadline = min(deadline, time.monotonic() + GRACE)
    return answers


def _stacks(folder: str, rank: int) -> str:
    text = _stack_file(folder, rank).read_text() if _stack_file(folder, rank).exists() else ""
    return f"\n{text}" if text else ""


def _stack_file(folder: str, rank: int) -> Path:
    return Path(folder, f"stack-{rank}")


def _one_rank(
    function: Callable[..., Any], args: Any, rank: int, world_size: int, folder: str, timeout: float, pipe: Connection
) -> None:
    with _stack_file(folder, rank).open("w") as stacks:
        faulthandler.dump_traceback_later(timeout, exit=True, file=stacks)
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{folder}/store",
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=timeout),
            )
            answer = function(rank, *args)
            dist.barrier()  # nobody takes its store or its sockets away from a rank that still needs them
        except BaseException:
            answer = _Problem(traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        pipe.send(answer)
    pipe.close()
    os._exit(0)  # a gloo group that is freed can wait for ever (rankzero.train.distributed says why)
