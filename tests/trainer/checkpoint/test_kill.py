"""Killed at any moment, inside a save too, a run ends with the bits of an undisturbed one (known failure A23)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import multiprocessing
import random
import re
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR

from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.checkpoint.layout import step_of
from tests.trainer.ranks import PRELOAD, SINGLE_THREADED
from tests.waiting import until

STEPS, EVERY = 12, 2
WIDTH = 400
"""So that about half of the time goes into saves."""
LIMIT = 100.0
"""Seconds for one attempt."""


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor that may be sharded, as one. All ranks call it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def train(rank: int, world_size: int, store: str, folder: Path, form: str, how: str) -> None:
    """A rank of a run with dropout, buffers, a schedule; rank 0 leaves a digest of all weights in the end."""
    disk = str(disk_of(folder, rank)) if how == "nodes' disks first" else ""
    config = CheckpointConfig(every_steps=EVERY, keep=2, asynchronous=how != "synchronous", local_path=disk)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    norm = nn.LayerNorm(WIDTH) if form == "fsdp" else nn.BatchNorm1d(WIDTH)
    model: nn.Module = nn.Sequential(
        nn.Linear(8, WIDTH), norm, nn.Dropout(0.3), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
    )
    if form == "fsdp":
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = StepLR(optimizer, 7, 0.5)
    torch.manual_seed(rank)
    with Checkpoints(folder, config) as checkpoints:
        checkpoints.track(model=model, optimizer=optimizer, schedule=schedule)
        for step in range(checkpoints.resume() + 1, STEPS + 1):
            inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(step * world_size + rank))
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()
            schedule.step()
            if checkpoints.due(step) or step == STEPS:
                checkpoints.save(step, final=step == STEPS)
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(whole(value).numpy().tobytes())
    if rank == 0:
        (folder / "digest").write_text(digest.hexdigest())
    dist.barrier()


def disk_of(folder: Path, rank: int) -> Path:
    """The disk of a rank's node."""
    return folder.with_name(f"{folder.name}-disk-{rank}")


class Run:
    """A run of two ranks in a folder, started as often as it takes."""

    def __init__(self, folder: Path, form: str, how: str) -> None:
        self.folder, self.form, self.how = folder, form, how
        self.attempts = 0
        folder.mkdir()
        self.checkpoints = Checkpoints(folder)

    def writing(self) -> set[tuple[str, int]]:
        """Folders that a save has begun, with their inodes: those of a save that was killed stay for a while."""
        found = set()
        for path in self.checkpoints.layout.leftovers():
            with contextlib.suppress(FileNotFoundError):  # it is finished
                found.add((path.name, path.stat().st_ino))
        return found

    def begun(self, stale: set[tuple[str, int]]) -> int:
        """The step of the newest save that has begun, ``stale`` folders not counted."""
        names = [path.name for path in self.checkpoints] + [name for name, _ in self.writing() - stale]
        return max((int(re.findall(r"\d+", name)[0]) for name in names), default=0)

    def good(self) -> list[int]:
        """The steps whose checkpoints can be loaded, newest first."""
        return [step_of(path) for path in self.checkpoints if not self.checkpoints.verify(path)]

    def start(self) -> list[BaseProcess]:
        """Another attempt."""
        self.attempts += 1
        with pytest.MonkeyPatch.context() as patch:
            for name, value in SINGLE_THREADED.items():
                patch.setenv(name, value)
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(PRELOAD)
            store = str(self.folder / f"store-{self.attempts}")
            processes: list[BaseProcess] = [
                context.Process(target=train, args=(rank, 2, store, self.folder, self.form, self.how))
                for rank in range(2)
            ]
            for process in processes:
                process.start()
        return processes

    def finish(self) -> str:
        """Let an attempt come to its end; the digest of the weights."""
        processes = self.start()
        try:
            for process in processes:
                process.join(LIMIT)
            assert [process.exitcode for process in processes] == [0, 0]
        finally:
            kill(processes)
        assert [path for rank in range(2) for path in disk_of(self.folder, rank).glob("*")] == []
        return (self.folder / "digest").read_text()


def kill(processes: list[BaseProcess]) -> None:
    """SIGKILL to all of them."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def story(folder: Path, form: str, how: str, *, kills: int, seed: int) -> int:
    """Kill a run so often, and compare its end with that of an undisturbed one; how many kills were inside a save.

    Moments are random: some time after a random one of the next saves has begun. A run whose last checkpoint is there
    is compared, and the next kills strike another one.
    """
    expected = Run(folder / "undisturbed", form, how).finish()
    run = Run(folder / "disturbed", form, how)
    chance, inside = random.Random(seed), 0
    for number in range(kills):
        before, stale = run.good(), run.writing()
        target = (before[0] if before else 0) + EVERY * chance.randint(1, 3)
        processes = run.start()
        has_begun = functools.partial(lambda run, stale, step: run.begun(stale) >= step, run, stale, min(target, STEPS))
        until(has_begun, timeout=LIMIT, what=f"a save of step {target}")
        processes[0].join(chance.uniform(0, 0.2))
        kill(processes)
        good, writing = run.good(), run.writing() - stale
        assert good[:1] >= before[:1], f"kill {number}: no checkpoint is left that can be loaded"
        inside += bool(writing)
        print(f"kill {number}: newest good {good[:1]}, unfinished {[name for name, _ in writing]}", flush=True)
        if good[:1] == [STEPS]:  # nothing is left to be killed in it
            assert run.finish() == expected
            run = Run(folder / f"disturbed-{number}", form, how)
    assert run.finish() == expected
    return inside


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("form", "how"), [("ddp", "asynchronous"), ("fsdp", "asynchronous"), ("fsdp", "nodes' disks first")]
)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(tmp_path: Path, form: str, how: str) -> None:
    story(tmp_path, form, how, kills=2, seed=0)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("form", "how"),
    [
        ("ddp", "asynchronous"),
        ("fsdp", "asynchronous"),
        ("fsdp", "synchronous"),
        ("ddp", "nodes' disks first"),
        ("fsdp", "nodes' disks first"),
    ],
)
def test_fifty_kills_at_random_moments_leave_no_trace(tmp_path: Path, form: str, how: str) -> None:
    inside = story(tmp_path, form, how, kills=50, seed=1)
    print(f"{form}, {how}: {inside} of 50 kills were inside a save")
    assert inside >= 10
