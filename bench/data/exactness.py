"""Is every sample seen exactly once in an epoch that is killed and resumed, also with another number of ranks?

The ranks of an attempt are processes of one group, all on one node. When every one has made its
steps and left its state, they and their workers are killed (SIGKILL); the next attempt begins with these states. Where
the number of ranks stays, each is to be given the batches that it would have been given undisturbed. And all are to be
given as many in an attempt: a rank that has none left while others do is one that they wait for in vain.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from itertools import islice
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import torch.distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]

from bench.data.peers import PEERS, Task, fresh, scratch

SAMPLES, BATCH, SHARDS = 1003, 4, 40
LIMIT = 120.0
"""Seconds that an attempt may take."""


Batches = list[list[int]]
"""The numbers of the samples of each batch."""


class Attempt(NamedTuple):
    """So many ranks, each with so many workers, and the steps they make before they are killed; None: to the end."""

    ranks: int
    steps: int | None = None
    workers: int = 1


UNDISTURBED = "undisturbed, 4 ranks"
ROUTES = {
    UNDISTURBED: [Attempt(4)],
    "killed, 4 -> 4 ranks": [Attempt(4, 30), Attempt(4)],
    "killed, 1 -> 2 workers a rank": [Attempt(4, 30), Attempt(4, workers=2)],
    "killed twice, 4 -> 2 -> 4 ranks": [Attempt(4, 30), Attempt(2, 60), Attempt(4)],
}


def compare(name: str) -> dict[str, Any]:
    """What this reader does on each route, in a process of its own: some set how others' workers start."""
    with scratch() as place:
        folder = Path(place) / "data"
        PEERS[name]().write([(number, b"\xff\xd8\xff" + bytes(100)) for number in range(SAMPLES)], folder, SHARDS)
        command = [sys.executable, "-W", "ignore", "-m", "bench.data.exactness", name, str(folder)]
        said = subprocess.run(command, stdout=PIPE, check=True).stdout
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        return answer


def measure(name: str, folder: Path) -> dict[str, Any]:
    """See :func:`compare`."""
    answer: dict[str, Any] = {}
    given: dict[str, list[Batches]] = {}
    with scratch() as place:
        for route, attempts in ROUTES.items():
            try:
                given[route], steps = _walk(name, folder, attempts, fresh(Path(place) / "attempts"))
            except RuntimeError as error:
                answer[route] = {"exact": False, "fails": str(error)[:300]}
                continue
            seen = Counter(number for batches in given[route] for batch in batches for number in batch)
            missing, repeated = SAMPLES - len(seen), seen.total() - len(seen)
            answer[route] = {"exact": not missing and not repeated, "missing": missing, "repeated": repeated}
            answer[route]["steps_differ"] = any(len(set(of_ranks)) > 1 for of_ranks in steps)
            if len({attempt.ranks for attempt in attempts}) == 1:
                answer[route]["as_undisturbed"] = given[route] == given.get(UNDISTURBED)
    return answer


def _walk(name: str, folder: Path, attempts: list[Attempt], place: Path) -> tuple[list[Batches], list[list[int]]]:
    """What each rank was given, in turn, and how many batches each was given in each attempt.

    Raises RuntimeError with what the peer said.
    """
    steps: list[list[int]] = []
    given: list[Batches] = [[] for _ in range(max(attempt.ranks for attempt in attempts))]
    states: list[Any] = [None]
    for number, attempt in enumerate(attempts, 1):
        notes = place / str(number)
        notes.mkdir(parents=True)
        if name == "mosaicml-streaming":  # as it wants after a crash
            import_module("streaming.base.util").clean_stale_shared_memory()
        tasks = [Task(folder, rank, attempt.ranks, BATCH, attempt.workers) for rank in range(attempt.ranks)]
        started = [_fork(name, task, states[min(task.rank, len(states) - 1)], attempt.steps, notes) for task in tasks]
        try:
            ends = [_note(notes / str(task.rank)) for task in tasks]
        finally:
            for process in started:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
        for batches, (more, _) in zip(given, ends, strict=False):
            batches += more
        steps.append([len(more) for more, _ in ends])
        states = [state for _, state in ends]
    return given, steps


def _fork(name: str, task: Task, state: Any, steps: int | None, notes: Path) -> int:
    """Start a rank, in a process group of its own with its workers."""
    parent = os.getpid()
    process = os.fork()
    if process:
        os.setpgid(process, process)
        return process
    try:
        os.setpgid(0, 0)
        end: tuple[Any, ...] = (*_run(name, task, state, steps, notes / "store"), "")
    except Exception as error:  # of whatever kind the peer has
        end = ([], None, f"{type(error).__name__}: {error}")
    finally:
        part = notes / f"{task.rank}.part"
        part.write_bytes(pickle.dumps(end))
        part.rename(notes / str(task.rank))
        while os.getppid() == parent:  # killed by it, or ended after it
            time.sleep(0.1)
        os._exit(1)


def _run(name: str, task: Task, state: Any, steps: int | None, store: Path) -> tuple[Batches, Any]:
    """In the rank: what it was given, and its state after it."""
    local = {"RANK": task.rank, "LOCAL_RANK": task.rank, "WORLD_SIZE": task.world_size, "NNODES": 1}
    local |= {"GLOBAL_RANK": task.rank, "LOCAL_WORLD_SIZE": task.world_size}
    os.environ |= {key: str(value) for key, value in local.items()}
    group = FileStore(str(store), task.world_size)
    torch.distributed.init_process_group("gloo", store=group, rank=task.rank, world_size=task.world_size)
    stream = PEERS[name]().read(task)
    if state is not None:
        stream.resume(state)
    batches = [numbers for numbers, _ in islice(stream, steps)]
    return batches, stream.state()


def _note(path: Path) -> tuple[Batches, Any]:
    """What a rank has left. Raises RuntimeError where it failed, or does not come to an end."""
    limit = time.monotonic() + LIMIT
    while not path.exists():
        if time.monotonic() > limit:
            raise RuntimeError(f"rank {path.name} of attempt {path.parent.name}: no end within {LIMIT:g} s")
        time.sleep(0.05)
    batches, state, problem = pickle.loads(path.read_bytes())  # noqa: S301 -- a child of this process wrote it
    if problem:
        raise RuntimeError(f"rank {path.name} of attempt {path.parent.name}: {problem}")
    return batches, state


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(measure(sys.argv[1], Path(sys.argv[2]))) + "\n")
