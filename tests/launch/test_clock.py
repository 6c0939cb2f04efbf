"""A node's clock is set by an hour while it trains: a time server came late, or an operator did it by hand."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from scripts.lab.host import FAKETIME
from tests.launch.conftest import MakeGroup
from tests.waiting import until

HEARTBEAT_TIMEOUT = 4
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FAKETIME.exists(), reason="apt-get install libfaketime"),
]


class Clock:
    """The wall clock of processes that are started with ``environment``; the monotonic one stays as it is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set("+0")
        self.environment = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset: str) -> None:
        """Step it to so many seconds from the real time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._file)


def hour_of_last_line(output: str) -> int:
    """The hour in which a launcher wrote its last line."""
    return int(output.splitlines()[-1][:2])


@pytest.mark.parametrize("node_rank", [0, 1])
@pytest.mark.parametrize("step", ["+3600", "-3600"])
def test_a_stepped_clock_ends_nothing_and_records_stay_in_order(
    make_group: MakeGroup, tmp_path: Path, node_rank: int, step: str
) -> None:
    clock = Clock(tmp_path)
    group = make_group("wait", heartbeatTimeout=HEARTBEAT_TIMEOUT)
    for pod in group.pods:
        pod.start(**(clock.environment if pod.node_rank == node_rank else {}))
    workers = group.wait_for_workers(1, 2)
    clock.set(step)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 2 * HEARTBEAT_TIMEOUT, what="time to miss heartbeats")
    assert [pod.status()["state"] for pod in group.pods] == ["running", "running"]
    assert "ended" not in group.attempt(1)

    os.kill(int(workers[1 - node_rank]["pid"]), signal.SIGKILL)  # now something is to be written down
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    first, second = group.attempt(1), group.attempt(2)
    assert group.attempt(3) == {}
    assert first["started"] <= first["ended"] <= second["started"] <= second["ended"]
    assert first["cause"]["failure"]["rank"] == 1 - node_rank
    hours = [hour_of_last_line(pod.output) for pod in group.pods]  # the step was there indeed
    assert (hours[node_rank] - hours[1 - node_rank]) % 24 in ({1, 2} if step == "+3600" else {22, 23})
