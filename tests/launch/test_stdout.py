"""A pod's log that nobody takes: what is printed then is lost and counted, and nothing waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.launch.conftest import MakeGroup
from tests.launch.pods import REPO
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

PRINT = "from rankzero.launch import stdout\nfor n in range(%d): stdout.write(b'%%06d ' %% n + b'x' * 93 + b'\\n')\n"
"""Lines of 100 bytes."""


def printing(code: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(REPO / "trainer")}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=pipe, stdout=pipe, stderr=pipe)


def test_all_lines_are_there_in_their_order_when_the_process_has_ended() -> None:
    printed, _ = printing(PRINT % 5_000 + "stdout.finish()").communicate(timeout=PATIENCE)
    assert [int(line[:6]) for line in printed.splitlines()] == list(range(5_000))


def test_a_process_whose_output_nobody_takes_ends_in_time() -> None:
    process = printing(PRINT % 100_000 + "stdout.finish()")
    assert process.wait(PATIENCE) == 0
    process.communicate()


def test_lines_that_nobody_took_in_time_are_counted_at_their_place() -> None:
    code = "\nimport sys; print('all', file=sys.stderr, flush=True); sys.stdin.read()\n"
    process = printing(PRINT % 100_000 + code + "stdout.FINISH_WITHIN = 80; stdout.finish()")
    assert process.stderr is not None
    assert process.stderr.readline() == b"all\n"
    printed, _ = process.communicate(timeout=PATIENCE)
    expected = kept = 0
    for line in printed.decode().splitlines():
        if gap := re.fullmatch(r"-- (\d+) lines are missing here --", line):
            expected += int(gap[1])
        else:
            assert int(line[:6]) == expected
            expected, kept = expected + 1, kept + 1
    assert expected == 100_000
    assert 1000 < kept < 100_000


def test_a_pod_whose_log_nobody_takes_goes_on_training_and_answers(make_group: MakeGroup) -> None:
    """A container runtime that hangs must not stop the group."""
    group = make_group("step", logRanks="all")
    full, hold = os.pipe()
    os.set_blocking(hold, False)
    try:
        while os.write(hold, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(hold, True)
    group.pods[0].start(stdout=hold)
    os.close(hold)
    group.pods[1].start()

    def step() -> int:
        return int(group.pods[0].status().get("group", {}).get("progress", {}).get("step", 0))

    first = until(step, what="the first step")
    until(lambda: step() > first, what="a step more")
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    os.close(full)
