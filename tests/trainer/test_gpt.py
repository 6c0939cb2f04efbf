"""The example by each of its three starts: as a program, under torchrun, and under the launcher with its own values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rankzero import contract
from tests.launch.pods import REPO, PodGroup
from tests.trainer.programs import TORCHRUN, losses_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = REPO / "trainer/examples/gpt.py"
VALUES = yaml.safe_load((REPO / "experiments/gpt.yaml").read_text(encoding="utf-8"))
STEPS = "6"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text to learn that is read in no time."""
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.txt").write_text("to be or not to be, " * 200)
    return folder


@pytest.mark.parametrize("start", ["python", "torchrun"])
def test_it_runs_as_a_program_and_under_torchrun(start: str) -> None:
    """On its own text, with the settings that it brings."""
    losses = losses_of(*(TORCHRUN if start == "torchrun" else ()), str(EXAMPLE), "--steps", STEPS)
    assert losses[0] == pytest.approx(5.6, abs=0.3)  # ln 256 = 5.5, and what random logits add to it
    assert losses[-1] < losses[0] - 0.2


def run_in_pods(folder: Path, text: Path, **train: Any) -> PodGroup:
    """Two pods of two ranks with the settings of experiments/gpt.yaml and ``train``."""
    folder.mkdir()
    pods = PodGroup(folder, nodes=2, procs=2, args=[])
    for pod in pods.pods:
        launch = {**pods.launch, "script": str(EXAMPLE), "args": ["--steps", STEPS], "statusPort": pod.status_port}
        settings = {**VALUES["train"], "data": str(text), "batchSize": 4, **train}
        pod.config.write_text(yaml.safe_dump({"launch": launch, "train": settings}))
    pods.start()
    try:
        assert [pod.wait(250) for pod in pods.pods] == [0, 0]
    finally:
        pods.stop()
        for pod in pods.pods:
            print(pod.output)
    return pods


@pytest.mark.parametrize(
    "parallel",
    [VALUES["train"]["parallel"], {"pipeline": 2, "tensor": 2, "schedule": "gpipe"}],
    ids=str,
)
def test_its_values_choose_the_form_and_the_script_stays(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, parallel: dict[str, Any]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    accumulate = 2 if "pipeline" in parallel else 1
    pods = run_in_pods(tmp_path / "run", text, parallel=parallel, accumulate=accumulate)
    result = pods.outcome()["result"]
    assert result["steps"] == int(STEPS)
    assert result["loss"] < 5.5
    newest = pods.state_dir / contract.checkpoint_dir(int(STEPS))
    assert (newest / contract.MANIFEST_FILE).exists()


def test_a_mesh_that_the_pods_do_not_make_ends_the_run_with_a_sentence(tmp_path: Path, text: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    [pod] = (pods := PodGroup(folder, nodes=1, procs=2, args=[])).pods
    launch = {**pods.launch, "script": str(EXAMPLE), "statusPort": pod.status_port}
    pod.config.write_text(yaml.safe_dump({"launch": launch, "train": {"data": str(text), "parallel": {"shard": 3}}}))
    try:
        assert pod.start().wait(250) == contract.EXIT_USAGE
    finally:
        pods.stop()
    assert "train.parallel: shard is 3: 3 ranks do not divide the world of 2" in pod.output
