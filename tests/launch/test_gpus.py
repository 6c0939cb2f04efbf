"""GPU memory between attempts. No GPU is here: nvidia-smi is a mock of one, a script that prints what a file holds."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rankzero.launch import gpus
from rankzero.launch.gpus import Gpus
from rankzero.launch.processes import living_descendants
from tests.launch.conftest import MakeGroup
from tests.waiting import until

pytestmark = pytest.mark.slow

MOCK = """#!/bin/sh
echo "$*" >> {folder}/calls
{action}
"""


class MockGpus:
    """Mock of hardware: an nvidia-smi at the front of the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "nvidia-smi"
        self.does("cat {folder}/gpus")

    def does(self, action: str) -> None:
        new = self.folder / "new"
        new.write_text(MOCK.format(folder=self.folder, action=action.format(folder=self.folder)))
        new.chmod(0o755)
        new.replace(self.program)

    def show(self, *rows: str) -> None:
        new = self.folder / "new"
        new.write_text("".join(f"{row}\n" for row in rows))
        new.replace(self.folder / "gpus")

    @property
    def calls(self) -> int:
        calls = self.folder / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    @property
    def path(self) -> str:
        return f"{self.folder}:{os.environ['PATH']}"


@pytest.fixture
def mock(tmp_path: Path) -> MockGpus:
    folder = tmp_path / "bin"
    folder.mkdir()
    return MockGpus(folder)


def after_an_attempt(mock: MockGpus, monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> list[str]:
    """What is said before the second attempt, where ``change`` happened during the first."""
    monkeypatch.setenv("PATH", mock.path)
    monkeypatch.setattr(gpus, "WITHIN", 3)
    said: list[str] = []

    async def scenario() -> None:
        found = Gpus(said.append)
        await found.remember()
        await found.wait_until_free()
        change()
        await found.wait_until_free()

    asyncio.run(scenario())
    return said


def test_the_next_attempt_waits_until_the_memory_is_free(mock: MockGpus, make_group: MakeGroup) -> None:
    mock.show("0, 4", "1, 700")
    group = make_group("wait", nodes=1)
    group.pods[0].start(PATH=mock.path)
    worker = group.wait_for_workers(1, 1)[0]
    before = mock.calls
    mock.show("0, 4", "1, 81000")
    os.kill(int(worker["pid"]), signal.SIGKILL)
    until(lambda: mock.calls >= before + 3, what="nvidia-smi is asked again")
    assert group.workers(2) == {}
    mock.show("0, 90", "1, 701")  # near to what it was
    group.wait_for_workers(2, 1)
    group.release()
    assert group.pods[0].wait() == 0
    assert before == 1  # the first attempt waits for nothing
    assert "GPU" not in group.pods[0].output


def test_a_gpu_that_keeps_its_memory_is_named_and_gone_on_with(mock: MockGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    mock.show("0, 4", "1, 700")
    [said] = after_an_attempt(mock, monkeypatch, lambda: mock.show("0, 4", "1, 81000"))
    assert said.startswith("GPU 1 still holds 80300 MiB more than before the first attempt, though no worker is left")


def test_a_gpu_that_is_gone_is_named(mock: MockGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known failure A10: a lost GPU on a node that stays ready."""
    mock.show("0, 4", "1, 4")
    [said] = after_an_attempt(mock, monkeypatch, lambda: mock.show("0, 4"))
    assert said.startswith("GPU 1 is not shown by nvidia-smi any more")


def test_an_nvidia_smi_that_hangs_is_ended_and_gone_on_without(mock: MockGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    mock.show("0, 4")
    others = set(living_descendants(os.getpid(), set()))
    [said] = after_an_attempt(mock, monkeypatch, lambda: mock.does("exec sleep 1000"))
    assert said.startswith("nvidia-smi did not answer within 3 s")
    until(lambda: not living_descendants(os.getpid(), others), what="nothing is left of it")


@pytest.mark.parametrize("action", ["exit 9", "echo 'No devices were found'; exit 6", "echo '0, [N/A]'", "true"])
def test_without_a_gpu_to_show_it_is_asked_once_and_nothing_is_said(
    mock: MockGpus, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    mock.does(action)
    assert after_an_attempt(mock, monkeypatch, lambda: None) == []
    assert mock.calls == 1


def test_without_nvidia_smi_nothing_happens(mock: MockGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    mock.program.unlink()
    assert after_an_attempt(mock, monkeypatch, lambda: None) == []
