"""The example under the real launcher: real digits, real gloo ranks, a killed pod, the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rankzero import contract
from rankzero.train.checkpoint import STATE_FILE, Checkpoints
from tests.launch.pods import REPO, PodGroup
from tests.waiting import until

EXAMPLE = REPO / "trainer/examples/mnist.py"
TRAIN = {
    "backend": "gloo", "batchSize": 64, "learningRate": 0.01, "logEverySteps": 10, "checkpoint": {"everySteps": 10},
}  # fmt: skip


def group(folder: Path) -> PodGroup:
    folder.mkdir()
    pods = PodGroup(folder, nodes=2, procs=1, args=[])
    for pod in pods.pods:
        launch = {**pods.launch, "script": str(EXAMPLE), "args": [], "statusPort": pod.status_port}
        pod.config.write_text(yaml.safe_dump({"launch": launch, "train": TRAIN}))
    return pods


def final_state(pods: PodGroup) -> dict[str, Any]:
    newest = next(iter(Checkpoints(pods.state_dir, keep=1)))
    state: dict[str, Any] = torch.load(newest / STATE_FILE, weights_only=True)
    return state


@pytest.mark.timeout(300)
def test_a_run_that_lost_a_pod_ends_with_the_same_bits_as_one_that_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure A23: exact resume, data position and random states included."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    undisturbed, disturbed = group(tmp_path / "a"), group(tmp_path / "b")
    try:
        undisturbed.start()
        assert [pod.wait(120) for pod in undisturbed.pods] == [0, 0]
        disturbed.start()
        checkpoints = Checkpoints(disturbed.state_dir, keep=3)
        until(lambda: list(checkpoints), timeout=120, what="a checkpoint")
        disturbed.pods[1].delete()
        disturbed.pods[1].start()
        assert [pod.wait(120) for pod in disturbed.pods] == [0, 0]
    finally:
        for pods in (undisturbed, disturbed):
            pods.stop()
            for pod in pods.pods:
                print(pod.output)
    resumed = disturbed.attempt(2)
    assert resumed["resumed_from"] >= 10
    assert disturbed.outcome()["result"] == undisturbed.outcome()["result"]
    ours, theirs = final_state(disturbed), final_state(undisturbed)
    assert ours["step"] == theirs["step"] == 62
    for name, weight in theirs["model"].items():
        assert torch.equal(ours["model"][name], weight), name


def test_missing_data_is_named_and_not_retried_for_ever(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump({"launch": {"script": str(EXAMPLE)}, "train": {**TRAIN, "data": "/no/such"}}))
    environment = {"PYTHONPATH": str(REPO / "trainer"), contract.ENV_CONFIG: str(config), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot read /no/such/mnist-10k-images-idx3-ubyte.gz" in done.stderr
    assert "set train.data to the folder" in done.stderr
