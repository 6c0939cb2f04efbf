"""What runs inside the pods of a drill: the crowd at a port, and which process is the one that trains."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankzero.errors import ClusterError
from scripts.drill import crowd, in_pod
from scripts.drill.in_pod import deepest
from scripts.drill.release import PROGRAM

COUNT = 8


@contextlib.contextmanager
def port(*, drops: bool) -> Iterator[int]:
    """A port at which somebody accepts all, and closes each at once or never."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=COUNT) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.close() if drops else held.append(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


def counted(number: int) -> dict[str, int]:
    words = ("crowd", "127.0.0.1", str(number), str(COUNT), "1.5")
    done = subprocess.run(
        [sys.executable, "-", *words], input=PROGRAM.read_text(), capture_output=True, text=True, check=True
    )
    stands, numbers = done.stdout.splitlines()
    assert stands == "stands"
    found: dict[str, int] = json.loads(numbers)
    return found


def test_a_crowd_counts_those_that_are_dropped_and_replaces_them() -> None:
    with port(drops=True) as number:
        found = counted(number)
    assert found["opened"] >= 2 * COUNT
    assert found["dropped"] >= COUNT
    assert found["refused"] == 0


def test_a_crowd_that_nobody_drops() -> None:
    with port(drops=False) as number:
        assert counted(number) == {"opened": COUNT, "dropped": 0, "refused": 0}


@pytest.mark.parametrize(
    ("opened", "dropped", "holds"),
    [
        (crowd.CONNECTIONS + 1, crowd.CONNECTIONS, True),
        (crowd.CONNECTIONS, 0, False),
        (crowd.CONNECTIONS + 1, crowd.CONNECTIONS - 1, False),
        (crowd.CONNECTIONS - 1, crowd.CONNECTIONS - 1, False),
    ],
)
def test_a_coordinator_that_keeps_strangers_fails_the_drill(opened: int, dropped: int, holds: bool) -> None:
    with contextlib.nullcontext() if holds else pytest.raises(ClusterError, match="of strangers were opened"):
        crowd.check({"opened": opened, "dropped": dropped})


@pytest.mark.parametrize(
    ("parents", "training"),
    [
        ({1: 0, 7: 1, 9: 7}, [9]),  # launcher, spare, what was forked from it
        ({1: 0, 7: 1, 9: 7, 10: 7}, [9, 10]),  # two ranks: no drill takes one of them
        ({1: 0, 9: 1}, [9]),  # torchrun is PID 1
        ({1: 0, 9: 1, 20: 0, 21: 20, 22: 21}, [9]),  # what was brought in from outside is none of it
        ({1: 0}, []),
    ],
)
def test_the_training_process_is_the_deepest_below_pid_1(parents: dict[int, int], training: list[int]) -> None:
    assert deepest(parents) == training


def test_the_worker_is_killed_at_the_next_save_and_not_for_what_an_earlier_kill_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints/.step-0000000020.tmp").mkdir(parents=True)
    monkeypatch.setattr(in_pod, "state_dir", lambda: tmp_path)
    looked = threading.Event()

    def unfinished(folder: Path) -> list[str]:
        found = listed(folder)
        looked.set()
        return found

    listed = in_pod.unfinished
    monkeypatch.setattr(in_pod, "unfinished", unfinished)

    def save() -> None:
        looked.wait()
        (tmp_path / "checkpoints/.step-0000000030.tmp").mkdir()

    with subprocess.Popen(["sleep", "infinity"]) as worker:
        monkeypatch.setattr(in_pod, "process", lambda _: worker.pid)
        thread = threading.Thread(target=save)
        thread.start()
        try:
            assert in_pod.kill_in_save() == 30
            assert worker.wait(90) == -signal.SIGKILL
        finally:
            worker.kill()
            thread.join()
