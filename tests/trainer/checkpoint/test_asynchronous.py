"""Saves in the background: what is saved is the state at the call, and nothing of it is lost or hidden."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from rankzero import heartbeat
from rankzero.config import CheckpointConfig
from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.checkpoint.staging import Staging
from rankzero.train.checkpoint.stream import Writer
from tests.trainer.checkpoint.scene import names, resumed, tracked
from tests.trainer.ranks import run
from tests.waiting import until


class Gate:
    """Holds a step of a save up until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        """Called in the background."""
        self.reached.set()
        assert self.opened.wait(60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Opened in the end, so that no thread is left waiting."""
    gate = Gate()
    yield gate
    gate.opened.set()


def held(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, gate: Gate) -> None:
    """Have each call of a method wait at the gate before it does anything."""
    original = getattr(owner, method)

    def wait(*args: Any, **options: Any) -> Any:
        gate.pass_through()
        return original(*args, **options)

    monkeypatch.setattr(owner, method, wait)


class Normed(nn.Module):
    """A model with buffers that its forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, 3) -> (batch, 1)."""
        return self.out(self.norm(inputs))  # type: ignore[no-any-return]


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 3)).pow(2).mean().backward()
    optimizer.step()


def test_the_optimizer_waits_for_the_copies_and_buffers_are_copied_before_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    held(monkeypatch, Staging, "finish", gate)
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.track(model=model, optimizer=optimizer)
    step(model, optimizer)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    checkpoints.save(1)
    assert gate.reached.wait(60)
    stepped = threading.Thread(target=step, args=(model, optimizer))
    stepped.start()  # its forward pass runs, and changes the running means
    means, before = model.get_buffer("norm.running_mean"), expected["norm.running_mean"]
    until(lambda: not torch.equal(means, before), what="the forward pass")
    assert torch.equal(model.out.weight, expected["out.weight"])
    gate.opened.set()
    stepped.join()
    assert not torch.equal(model.out.weight, expected["out.weight"])
    checkpoints.close()
    fresh = Normed()
    again = Checkpoints(tmp_path)
    again.track(model=fresh, optimizer=torch.optim.SGD(fresh.parameters(), 0.1, momentum=0.9))
    assert again.resume() == 1
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_the_loop_goes_on_while_a_save_is_written_and_latest_and_the_launcher_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    own = heartbeat.Heartbeat()
    monkeypatch.setattr(heartbeat, "_current", own)
    checkpoints, _ = tracked(tmp_path, asynchronous=True, keep=1)
    checkpoints.save(1, wait=True)
    checkpoints.close()
    held(monkeypatch, FileSystemWriter, "write_data", gate)
    checkpoints.save(2)
    assert gate.reached.wait(60)
    for later in (3, 4, 5):
        assert not checkpoints.due(later)
    assert own.beat.saved_step == 1
    assert names(checkpoints) == [".step-0000000002.1.tmp", "latest.json", "step-0000000001"]
    assert resumed(tmp_path)[0] == 1
    gate.opened.set()
    checkpoints.close()
    assert own.beat.saved_step == 2
    assert names(checkpoints) == ["latest.json", "step-0000000002"]


def test_the_next_save_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    checkpoints, model = tracked(tmp_path, asynchronous=True)
    held(monkeypatch, FileSystemWriter, "write_data", gate)
    model.value = 1
    checkpoints.save(1)

    def save_again() -> None:
        model.value = 2
        checkpoints.save(2)

    second = threading.Thread(target=save_again)
    second.start()
    assert gate.reached.wait(60)
    gate.opened.set()
    second.join()
    checkpoints.close()
    assert [checkpoints.verify(path) for path in checkpoints] == ["", ""]
    assert resumed(tmp_path) == (2, 2.0)


def test_a_bug_in_a_save_is_raised_at_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, _ = tracked(tmp_path, asynchronous=True)

    def break_down(*_: Any) -> None:
        raise TypeError("cannot pickle")

    monkeypatch.setattr(FileSystemWriter, "write_data", break_down)
    assert checkpoints.save(1)
    checkpoints._background._known.wait(60)
    with pytest.raises(CheckpointError, match="step 1 could not be written: TypeError: cannot pickle"):
        checkpoints.due(2)


def one_rank_fails(rank: int, folder: Path) -> list[str]:
    """Rank 1 cannot write its second checkpoint; what each rank hears of it."""
    checkpoints = Checkpoints(folder, CheckpointConfig())
    model = nn.Linear(50, 50)
    checkpoints.track(model=model)
    heard = [str(checkpoints.save(1, wait=True))]

    def refuse(*_: Any) -> Any:
        raise OSError(5, "Input/output error", "the disk")

    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(Writer, "write_data", refuse)
        heard.append(str(checkpoints.save(2, wait=True)))
    heard.append(str(checkpoints.save(3, wait=True)))
    checkpoints.close()
    return [*heard, *(path.name for path in checkpoints)]


@pytest.mark.slow
def test_a_rank_that_fails_makes_the_save_fail_everywhere_and_the_next_one_is_tried(tmp_path: Path) -> None:
    expected = ["True", "False", "True", "step-0000000003", "step-0000000001"]
    assert run(one_rank_fails, 3, tmp_path) == [expected] * 3


def test_open_files_stay_flat_for_a_model_of_thousands_of_tensors(tmp_path: Path) -> None:
    """Copies in memory that processes share would be an open file for each tensor."""
    model = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(2000))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.track(model=model)
    before, most = len(os.listdir("/proc/self/fd")), 0  # noqa: PTH208 -- a folder of open files
    for saved in (1, 2):
        checkpoints.save(saved)
        while not checkpoints._background._known.wait(0.02):
            most = max(most, len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    checkpoints.close()
    assert most <= before + 20
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


ENDS = """
import sys
from pathlib import Path
from rankzero.errors import DataError
from rankzero.train import entry
from rankzero.train.checkpoint import checkpoints as module, staging
from tests.trainer.checkpoint.scene import tracked
import threading
if sys.argv[2] == "hangs":
    module.FINISH_WITHIN = 0.5
    staging.Staging.finish = lambda self: threading.Event().wait()

def main():
    checkpoints, _ = tracked(Path(sys.argv[1]), 4_000_000, asynchronous=True)
    with checkpoints:
        checkpoints.save(1)
        raise DataError("a file is damaged", hint="fetch it")

entry.run(main)
"""


def ended_by_an_error(folder: Path, volume: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENDS, folder, volume],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.mark.slow
def test_an_error_ends_the_process_with_its_status_though_a_save_hangs(tmp_path: Path) -> None:
    done = ended_by_an_error(tmp_path, "hangs")
    assert done.returncode == 1
    assert "DataError: a file is damaged" in done.stderr


@pytest.mark.slow
def test_an_error_beside_a_save_lets_it_end_and_keeps_its_status(tmp_path: Path) -> None:
    """Where the interpreter ends first, the thread that writes aborts the process: it seems to have crashed."""
    done = ended_by_an_error(tmp_path, "works")
    assert done.returncode == 1, done.stderr
    assert "DataError: a file is damaged" in done.stderr
    assert resumed(tmp_path, size=4_000_000) == (1, 0.0)
