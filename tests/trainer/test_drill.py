"""The training that drills disturb: its faults are data, and nothing that happens to it changes its result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankzero import contract
from tests.launch.pods import REPO, PodGroup, descendants
from tests.waiting import until

pytestmark = pytest.mark.slow

SCRIPT = REPO / "trainer/examples/drill.py"
TRAIN = {"backend": "gloo", "logEverySteps": 1, "checkpoint": {"everySteps": 10, "asynchronous": False}}
"""Faults strike a few milliseconds after a save; so that it counts, the loop waits for it."""


def group(folder: Path, *arguments: str, nodes: int = 2, **train: Any) -> PodGroup:
    """Pods that run the script with these arguments, with the settings in ``TRAIN`` and ``train``."""
    folder.mkdir()
    pods = PodGroup(folder, nodes=nodes, procs=1, args=[])
    for pod in pods.pods:
        launch = {**pods.launch, "script": str(SCRIPT), "args": list(arguments), "statusPort": pod.status_port}
        pod.config.write_text(yaml.safe_dump({"launch": launch, "train": {**TRAIN, **train}}))
    return pods


def run(pods: PodGroup) -> list[int]:
    """Run to the end; the launchers' exit statuses."""
    try:
        pods.start()
        return [pod.wait() for pod in pods.pods]
    finally:
        pods.stop()
        for pod in pods.pods:
            print(pod.output)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of 30 steps on two ranks that nothing disturbed."""
    pods = group(tmp_path_factory.mktemp("undisturbed") / "run", "--steps", "30")
    assert run(pods) == [0, 0]
    found: dict[str, Any] = pods.outcome()["result"]
    assert found["steps"] == 30
    return found


def test_an_error_once_is_repeated_from_the_checkpoint_and_leaves_no_trace(
    tmp_path: Path, result: dict[str, Any]
) -> None:
    pods = group(tmp_path / "run", "--steps", "30", "--fail-at", "17", "--fail-rank", "1")
    assert run(pods) == [0, 0]
    first, second = pods.attempt(1), pods.attempt(2)
    assert first["cause"]["failure"]["rank"] == 1
    assert "a drill made step 17 fail" in first["cause"]["reason"]
    assert first["last_step"] <= 16
    assert second["resumed_from"] == 10
    assert pods.outcome()["result"] == result


def test_an_error_with_sharded_state_leaves_no_trace_either(tmp_path: Path, result: dict[str, Any]) -> None:
    """The mean of two ranks' gradients has the same bits whether they are reduced or reduce-scattered."""
    pods = group(
        tmp_path / "run", "--steps", "30", "--fail-at", "17", "--fail-rank", "1", parallel={"strategy": "fsdp"}
    )
    assert run(pods) == [0, 0]
    assert pods.attempt(2)["resumed_from"] == 10
    assert pods.outcome()["result"] == result


def test_an_error_always_ends_the_run(tmp_path: Path) -> None:
    pods = group(tmp_path / "run", "--steps", "30", "--fail-at", "5", "--fail-attempts", "always", nodes=1)
    assert run(pods) == [1]
    assert "the same error at the same step twice" in pods.outcome()["reason"]


@pytest.mark.timeout(400)
def test_a_stopped_pod_makes_all_ranks_save_and_the_next_attempt_go_on(tmp_path: Path, result: dict[str, Any]) -> None:
    """Known failure A24."""
    pods = group(tmp_path / "run", "--steps", "30", "--pace", "0.1")
    try:
        pods.start()
        until(
            lambda: pods.pods[0].status().get("group", {}).get("progress", {}).get("step", 0) >= 3,
            what="three steps",
        )
        pods.pods[1].terminate()
        assert pods.pods[1].wait() == contract.EXIT_REQUEUE
        pods.pods[1].start()
        assert [pod.wait() for pod in pods.pods] == [0, 0]
    finally:
        pods.stop()
        for pod in pods.pods:
            print(pod.output)
    first, second = pods.attempt(1), pods.attempt(2)
    assert first["cause"]["kind"] == "stopped"
    assert second["resumed_from"] == first["last_step"]
    assert pods.outcome()["result"] == result


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [("exit:64", 64, ""), ("oom", 1, "torch.OutOfMemoryError: CUDA out of memory"), ("never", 2, "is not error, oom")],
)
def test_a_fault_without_a_launcher(kind: str, status: int, words: str) -> None:
    command = [sys.executable, str(SCRIPT), "--steps", "3", "--fail-at", "2", "--fail-with", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "RANK": "0"})
    assert done.returncode == status
    assert words in done.stderr


def test_memory_that_is_allocated_is_really_taken(tmp_path: Path) -> None:
    pods = group(tmp_path / "run", "--pace", "0.1", "--allocate", "1000", "--allocate-at", "2", nodes=1)
    try:
        [pod] = pods.start().pods
        assert pod.process is not None
        launcher = pod.process.pid
        until(lambda: max(map(resident, descendants(launcher)), default=0) > 1000, what="the memory")
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == contract.EXIT_REQUEUE
    finally:
        pods.stop()


def resident(pid: int) -> float:
    """MiB of memory that a process holds."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20
