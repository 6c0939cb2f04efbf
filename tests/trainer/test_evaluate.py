"""The example that judges another run: on other ranks than it was trained on, from its newest good checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from rankzero import contract
from rankzero.train.checkpoint import Checkpoints
from tests.launch.pods import REPO, PodGroup
from tests.trainer.programs import TORCHRUN
from tests.trainer.ranks import run
from tests.trainer.test_mnist import mnist

SCRIPT = REPO / "trainer/examples/evaluate.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def train(rank: int, folder: str) -> list[float]:
    """Two checkpoints of a model that knows a little; how good each is on all test digits."""
    example = mnist()
    training, test = example.load_digits(example.DEFAULT_DATA)
    torch.manual_seed(0)
    model = example.digits_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    checkpoints = Checkpoints(Path(folder))
    checkpoints.track(model=model, optimizer=optimizer)
    images, labels = training[:512]
    right = []
    for step in (1, 2):
        model.train()
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        checkpoints.save(step, final=True)
        model.eval()
        with torch.no_grad():
            right.append(float((model(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean()))
    checkpoints.close()
    return right if rank == 0 else []


def evaluate(*arguments: str, by: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *by, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=250, check=False
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The state directory of a run of two ranks with two checkpoints, and how good they are."""
    folder = tmp_path_factory.mktemp("run")
    return folder, run(train, 2, str(folder))[0]


def in_a_pod(folder: Path, source: Path) -> dict[str, Any]:
    """The outcome of the script under the launcher, on two ranks."""
    pods = PodGroup(folder, nodes=1, procs=2, args=[])
    [pod] = pods.pods
    start = {"script": str(SCRIPT), "args": [str(source)], "statusPort": pod.status_port}
    pod.config.write_text(yaml.safe_dump({"launch": {**pods.launch, **start}, "train": {"backend": "gloo"}}))
    try:
        assert pod.start().wait(250) == 0
    finally:
        pods.stop()
        print(pod.output)
    return pods.outcome()


def test_a_run_is_judged_by_one_process_by_torchrun_and_by_the_launcher_alike(
    trained: tuple[Path, list[float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    source, right = trained
    told = evaluate(str(source), "--result", str(tmp_path / "result.json"))
    assert told.returncode == 0, told.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["step"] == 2
    assert result["test_accuracy"] == pytest.approx(right[1], abs=1e-6)
    told = evaluate(str(source), "--result", str(tmp_path / "of-two.json"), by=TORCHRUN)
    assert told.returncode == 0, told.stderr
    assert json.loads((tmp_path / "of-two.json").read_text()) == result
    outcome = in_a_pod(tmp_path, source)
    assert outcome["result"] == {name: result[name] for name in ("test_accuracy", "step")}


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_judged(
    trained: tuple[Path, list[float]], tmp_path: Path
) -> None:
    """Known failure A23."""
    whole, right = trained
    source = Path(shutil.copytree(whole, tmp_path / "run"))
    newest = source / contract.checkpoint_dir(2)
    file = max(newest.iterdir(), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])
    told = evaluate(str(source), "--result", str(tmp_path / "result.json"))
    assert f"checkpoint {newest.name} is left out: {file.name}" in told.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["step"], result["test_accuracy"]) == (1, pytest.approx(right[0], abs=1e-6))
