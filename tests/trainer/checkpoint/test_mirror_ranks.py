"""Copies in an object store by two ranks: the work is shared, and what one cannot do is known to both."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rankzero import contract
from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.transfer import Transfers
from tests.trainer.checkpoint.test_sharded import build, everything, steps
from tests.trainer.ranks import run
from tests.waiting import until

pytestmark = pytest.mark.slow

State = dict[str, list[float]]


def train(
    rank: int, folder: Path, form: str, last: int = 0, failing: tuple[int, str] = (-1, "")
) -> tuple[int, State, str, list[str]]:
    """Go on from what is there, to step ``last`` and a save, where there is one; the step, the state, what was said,
    and the files that this rank has sent or fetched.

    ``failing`` is a rank whose transfers of one kind fail the first time.
    """
    said, moved, failures = io.StringIO(), list[str](), [failing]
    real = Transfers.run

    def recorded(transfers: Transfers, job: str, url: str, **arguments: Any) -> tuple[Any, str]:
        if job in ("upload", "fetch"):
            moved.extend(arguments["files"])
        if (rank, job) in failures:
            failures.clear()
            return None, "the network is down"
        return real(transfers, job, url, **arguments)

    with contextlib.redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transfers, "run", recorded)
        model = build(form)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        with Checkpoints(folder / "run", CheckpointConfig(mirror=f"file://{folder}/store")) as checkpoints:
            checkpoints.track(model=model, optimizer=optimizer)
            first = checkpoints.resume()
            if last:
                steps(model, optimizer, first + 1, last)
                checkpoints.save(last)
    return first, everything(model, optimizer), said.getvalue(), moved


def whole(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("store/run/step-*/MANIFEST.json"))


@pytest.mark.parametrize("form", ["fsdp", "ddp"])
def test_ranks_share_the_files_both_ways_and_another_number_of_them_goes_on_as_well(tmp_path: Path, form: str) -> None:
    saved = run(train, 2, tmp_path, form, 5)
    files = json.loads((tmp_path / "store/run/step-0000000005" / contract.MANIFEST_FILE).read_text())["files"]
    assert sorted(saved[0][3] + saved[1][3]) == sorted(files)
    assert all(moved for _, _, _, moved in saved)
    shutil.rmtree(tmp_path / "run")
    again = run(train, 2, tmp_path, form)
    assert [(step, state) for step, state, _, _ in again] == [(5, saved[0][1])] * 2
    assert sorted(again[0][3] + again[1][3]) == sorted(files)
    assert "step-0000000005 of file://" in again[0][2]
    shutil.rmtree(tmp_path / "run")
    assert run(train, 1, tmp_path, "plain")[0][:2] == (5, saved[0][1])


@pytest.mark.parametrize("failing", [(1, "upload"), (0, "complete")])
def test_a_rank_that_cannot_copy_makes_the_copy_fail_for_all_and_a_later_one_is_made(
    tmp_path: Path, failing: tuple[int, str]
) -> None:
    said = run(train_failing, 2, tmp_path, failing)[0][2]
    where = f"rank {failing[0]}: " if failing[1] == "upload" else ""
    assert f"the checkpoint of step 5 was not copied to file://{tmp_path}/store/run: {where}the network is down" in said
    assert whole(tmp_path) == []
    run(train, 2, tmp_path, "fsdp", 10)
    assert "step-0000000010" in whole(tmp_path)


def train_failing(rank: int, folder: Path, failing: tuple[int, str]) -> Any:
    """As :func:`train`, to the first save."""
    return train(rank, folder, "fsdp", 5, failing=failing)


def test_a_rank_that_cannot_fetch_makes_all_take_the_one_before(tmp_path: Path) -> None:
    expected = run(train, 2, tmp_path, "fsdp", 5)[0][1]
    run(train, 2, tmp_path, "fsdp", 10)
    shutil.rmtree(tmp_path / "run")
    again = run(resume_failing, 2, tmp_path)
    assert [(step, state) for step, state, _, _ in again] == [(5, expected)] * 2
    assert "step-0000000010 of file://" in again[0][2]
    assert "is left out: the network is down" in again[0][2]


def resume_failing(rank: int, folder: Path) -> Any:
    """As :func:`train`, without training."""
    return train(rank, folder, "fsdp", failing=(1, "fetch"))


def test_ranks_that_are_stopped_leave_no_thread_in_a_collective(tmp_path: Path) -> None:
    assert run(stop, 2, tmp_path) == [False, False]
    assert whole(tmp_path) == []


def stop(rank: int, folder: Path) -> bool:
    """Leave as at the end of a pod, while the store does not answer; whether the thread that copies is still there."""
    real = Transfers.run

    def held(transfers: Transfers, job: str, url: str, **arguments: Any) -> tuple[Any, str]:
        if job == "upload" and rank == 1:  # the other one waits for it
            until(lambda: transfers._is_ended, what="the end")
        return real(transfers, job, url, **arguments)

    checkpoints = Checkpoints(folder / "run", CheckpointConfig(mirror=f"file://{folder}/store"))
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit), checkpoints:
        patch.setattr(Transfers, "run", held)
        checkpoints.track(model=build("fsdp"))
        checkpoints.save(1, wait=True)
        sys.exit(contract.EXIT_REQUEUE)
    assert checkpoints._mirror is not None
    thread = checkpoints._mirror._thread
    return thread is not None and thread.is_alive()
