"""What a stalled attempt leaves: whole files, and one message for all ranks of a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankzero import contract, heartbeat
from rankzero.heartbeat import Heartbeat
from rankzero.launch import evidence
from rankzero.launch.environment import FLIGHT_PIPE
from rankzero.launch.protocol import MAX_LINE, Dumped, encode
from tests.launch.pods import REPO
from tests.waiting import PATIENCE, until

RANK = Path(__file__).with_name("stalled_rank.py")
PART = 1000
"""Bytes that it writes at a time."""
StartRank = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of the attempt."""
    path = tmp_path / "attempt"
    path.mkdir()
    return path


@pytest.fixture
def start_rank(folder: Path) -> Iterator[StartRank]:
    """Start rank 0 and wait until it beats, and listens where it has a flight recorder."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*delays: float) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPO / "trainer"),
            "RANK": "0",
            contract.ENV_ATTEMPT_DIR: str(folder),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / FLIGHT_PIPE),
            "TORCH_FR_DUMP_TEMP_FILE": str(folder / contract.flight_file()),
        }
        started.append(subprocess.Popen([sys.executable, str(RANK), *map(str, delays)], env=environment))
        until(lambda: heartbeat.read(folder / contract.heartbeat_file(0)), what="a beat")
        until(lambda: not delays or (folder / "listening").exists(), what="it listens")
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_flight_recorder_is_waited_for_until_it_has_written_all(
    folder: Path, tmp_path: Path, start_rank: StartRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure A6. The stack is there at once; NCCL looks at its pipe once a second, and writes in parts."""
    monkeypatch.setattr(evidence, "LOOK_EVERY", 2)  # so that pauses between two parts are shorter
    monkeypatch.setattr(evidence, "STACK_WITHIN", 60)
    monkeypatch.setattr(evidence, "FLIGHT_WITHIN", 60)
    start_rank(0, 0.1, 0.1)
    where = asyncio.run(evidence.dump(folder, [0]))
    assert "in wait_for_ever" in where["0"]
    evidence.keep(folder, tmp_path / "volume/attempts/0001")
    kept = {file.name: file.stat().st_size for file in (tmp_path / "volume/attempts/0001").iterdir()}
    assert kept.keys() == {contract.stack_file(0), contract.flight_file(0)}
    assert kept[contract.flight_file(0)] == 3 * PART


def test_a_rank_without_a_flight_recorder_is_not_waited_for(
    folder: Path, start_rank: StartRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "STACK_WITHIN", 60)
    monkeypatch.setattr(evidence, "FLIGHT_WITHIN", 1000)
    start_rank()
    assert "in wait_for_ever" in asyncio.run(evidence.dump(folder, [0]))["0"]


def test_a_rank_whose_process_is_stopped_gives_no_answer(
    folder: Path, start_rank: StartRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "STACK_WITHIN", 0.2)
    os.kill(start_rank().pid, signal.SIGSTOP)
    assert asyncio.run(evidence.dump(folder, [0])) == {"0": "no answer"}


def test_what_is_kept_is_whole_though_the_volume_outlasts_the_attempt(folder: Path, tmp_path: Path) -> None:
    """The launcher removes the attempt's folder while the volume still hangs: here, at the first write."""
    name, text = contract.stack_file(0), "the stack\n" * 1000
    (folder / name).write_text(text)
    target = tmp_path / "volume"
    target.mkdir()
    os.mkfifo(slow := target / f".{name}.tmp")  # to open it for writing hangs until somebody reads
    keeping = threading.Thread(target=evidence.keep, args=(folder, target), daemon=True)
    keeping.start()
    until(lambda: is_open(folder / name), what="it copies")
    shutil.rmtree(folder)
    assert not (target / name).exists()
    assert slow.read_text() == text
    keeping.join(PATIENCE)
    assert [file.name for file in target.iterdir()] == [name]


def is_open(file: Path) -> bool:
    """Whether this process has it open."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            if link.readlink() == file:
                return True
    return False


def test_the_lines_of_512_ranks_fit_into_one_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "STACK_WITHIN", 60)
    for rank in range(512):
        Heartbeat(folder / contract.heartbeat_file(rank)).step(1, epoch=0, loss=0.5)
        accents = r"\xe9" * 500  # as faulthandler writes them; JSON doubles the backslashes
        frame = f'  File "/{accents}/train.py", line 12345 in train_for_{rank}'
        (folder / contract.stack_file(rank)).write_text(f"Current thread 0x01 (most recent call first):\n{frame}\n")
    where = asyncio.run(evidence.dump(folder, range(512)))
    assert len(where) == 512
    assert all(line.endswith(f'/train.py", line 12345 in train_for_{rank}') for rank, line in where.items())
    assert len(encode(Dumped(10**6, where))) < MAX_LINE


@pytest.mark.parametrize("worst", ["\\", '"', "é", "\U0001f525"])
def test_the_longest_line_takes_at_most_twice_its_bytes_on_the_wire(worst: str) -> None:
    line = evidence._cut(worst * 1000, 96)
    assert len(line.encode()) <= 96
    assert len(encode(Dumped(1, {"0": line}))) - len(encode(Dumped(1, {"0": ""}))) <= 2 * 96
