"""Processes that not even SIGKILL ends, as on a hard mount whose server is away or with a GPU that is lost.

A frozen cgroup of version 1 holds a process just like that, in state D, until it is thawed.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch import spare, workers
from rankzero.launch.logs import Logs
from rankzero.launch.spare import Spare
from rankzero.launch.starters import start_plainly
from rankzero.launch.workers import WorkerGroup
from tests.launch.conftest import MakeGroup
from tests.launch.pods import alive
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

FREEZER = Path("/sys/fs/cgroup/freezer")


class Freezer:
    """Holds processes where no signal reaches them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, pid: int) -> None:
        (self._folder / "cgroup.procs").write_text(str(pid))
        (self._folder / "freezer.state").write_text("FROZEN")
        until(lambda: self._state == "FROZEN", what="the process is held")

    def release(self) -> None:
        (self._folder / "freezer.state").write_text("THAWED")
        until(lambda: self._state == "THAWED", what="the processes go on")

    @property
    def _state(self) -> str:
        return (self._folder / "freezer.state").read_text().strip()


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    """For processes that are killed by the end of the test."""
    if not os.access(FREEZER, os.W_OK):
        pytest.skip("needs cgroup v1 and the right to make one")
    folder = FREEZER / f"rankzero-test-{secrets.token_hex(4)}"
    folder.mkdir()
    made = Freezer(folder)
    yield made
    made.release()
    until(lambda: not (folder / "cgroup.procs").read_text(), what="the cgroup is empty")
    folder.rmdir()


def test_stopping_a_worker_that_does_not_end_takes_bounded_time_and_names_it(
    freezer: Freezer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "KILL_WITHIN", 3)

    async def scenario() -> tuple[list[int], list[int]]:
        logs = Logs(LaunchConfig(script="-c", log_file_limit=0), tmp_path, print)
        environments = [
            {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "TORCHELASTIC_ERROR_FILE": "/no/such/file"}
            for rank in ("0", "1")
        ]
        script = ["-c", "import threading; threading.Event().wait()"]
        group = await WorkerGroup.start(start_plainly, script, environments, 1, 0, logs)
        freezer.hold(group.workers[1].pid)
        async with asyncio.timeout(PATIENCE):
            left = await group.stop(1)
            freezer.release()
            await group.workers[1].ended
        return left, [worker.pid for worker in group.workers]

    left, pids = asyncio.run(scenario())
    assert left == pids[1:]


def test_a_spare_that_does_not_end_is_not_waited_for(freezer: Freezer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare, "KILL_WITHIN", 0.3)

    async def scenario() -> int:
        held = await Spare.start(os.environ)
        freezer.hold(held.pid)
        async with asyncio.timeout(PATIENCE):
            await held.close()
        return held.pid

    pid = asyncio.run(scenario())
    assert alive(pid)


@pytest.mark.parametrize("rank", [1, 0])
def test_a_pod_whose_worker_does_not_end_leaves_and_the_record_says_which(
    rank: int, freezer: Freezer, make_group: MakeGroup
) -> None:
    """Known failure A6: nobody hangs beside a process that waits for a device."""
    group = make_group("wait", stopTimeout=1).start()
    pids = {rank: int(worker["pid"]) for rank, worker in group.wait_for_workers(1, 2).items()}
    freezer.hold(pids[rank])
    os.kill(pids[1 - rank], signal.SIGKILL)
    stuck = group.pods[rank]
    assert stuck.wait() == contract.EXIT_PREFLIGHT
    said = f"process {pids[rank]} of rank {rank} on node {platform.node()} does not end even by SIGKILL (state D)"
    assert said in stuck.termination_log.read_text()
    until(lambda: group.attempt(1).get("cause"), what="the attempt's end")
    reason = group.attempt(1)["cause"]["reason"]
    assert reason.startswith(f"rank {1 - rank} (node rank {1 - rank}) was ended by SIGKILL")
    assert said in reason
    freezer.release()
    until(lambda: not alive(pids[rank]), what="the process ends at last")
    stuck.start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_a_pod_that_is_being_stopped_leaves_within_its_grace_whatever_hangs(
    freezer: Freezer, make_group: MakeGroup
) -> None:
    """Known failure A24: its worker does not end, and rank 0 does not answer."""
    group = make_group("wait", saveTimeout=1, stopTimeout=1, heartbeatTimeout=600).start()
    worker = int(group.wait_for_workers(1, 2)[1]["pid"])
    rank0 = group.pods[0].process
    assert rank0 is not None
    rank0.send_signal(signal.SIGSTOP)
    freezer.hold(worker)
    group.pods[1].terminate()
    began = time.monotonic()
    assert group.pods[1].wait() == contract.EXIT_REQUEUE
    # The launcher keeps to the grace by its own clock; a machine that is slow to run it gets as much again.
    assert time.monotonic() - began < 2 * (1 + 1 + contract.LEAVE_MARGIN)
    assert "stopped from outside (SIGTERM) in attempt 1" in group.pods[1].termination_log.read_text()
    os.kill(worker, signal.SIGKILL)  # in a pod it ends with PID 1
    freezer.release()
    until(lambda: not alive(worker), what="the process ends at last")
