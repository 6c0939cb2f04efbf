"""A script that imports nothing of ours trains alike wherever it is started; with a few lines more it also resumes."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankzero.train.checkpoint import Checkpoints
from tests.launch.pods import REPO, PodGroup
from tests.trainer.programs import TORCHRUN
from tests.waiting import until

SCRIPT = REPO / "trainer/examples/plain_torch.py"
GUIDE = REPO / "docs/own-script.md"
OPTIONS = ["--epochs", "6", "--batch-size", "250", "--data", str(SCRIPT.parent / "data")]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO / "trainer")}


def losses(output: str) -> list[str]:
    """What it says of each epoch."""
    return re.findall(r"epoch \d+  loss \S+(?=  right while training)", output)


def by(*launcher: str, script: Path = SCRIPT, **more: str) -> list[str]:
    """What it says when another launcher starts it."""
    command, environment = [sys.executable, *launcher, str(script), *OPTIONS], {**ENVIRONMENT, **more}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=250)
    return losses(done.stdout)


def pods(folder: Path, script: Path, **train: Any) -> PodGroup:
    """Two of ours that run a script."""
    folder.mkdir(exist_ok=True)
    group = PodGroup(folder, nodes=2, procs=1, args=[])
    for pod in group.pods:
        start = {"script": str(script), "args": OPTIONS, "statusPort": pod.status_port}
        pod.config.write_text(yaml.safe_dump({"launch": {**group.launch, **start}, "train": train}))
    return group


def patched(folder: Path, count: int) -> Path:
    """The example after the guide's first ``count`` changes."""
    script = Path(shutil.copy(SCRIPT, folder))
    changes = re.findall(r"```diff\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(changes) == 2
    for change in changes[:count]:
        subprocess.run(["git", "apply", "-"], cwd=folder, input=change, text=True, check=True)
    return script


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """What two ranks say under torchrun."""
    said = by(*TORCHRUN)
    assert len(said) == 6
    return said


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_it_imports_nothing_of_ours() -> None:
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "torch" in imported
    assert not [name for name in imported if name.startswith("rankzero")]


def test_the_changes_of_the_guide_fit_one_after_the_other(tmp_path: Path) -> None:
    text = patched(tmp_path, 2).read_text(encoding="utf-8")
    compile(text, "plain_torch.py", "exec")
    assert "parallelize(network()" in text


@pytest.mark.slow
def test_it_runs_alone() -> None:
    assert len(by()) == 6


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_pods_say_the_same_as_torchrun(tmp_path: Path, expected: list[str]) -> None:
    """The same file, unchanged; other ways to start a script are in tests/launch/test_methods.py."""
    group = pods(tmp_path, SCRIPT)
    try:
        group.start()
        assert [pod.wait(250) for pod in group.pods] == [0, 0]
    finally:
        group.stop()
        print(*(pod.output for pod in group.pods))
    assert losses(group.pods[0].output) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_the_lines_of_the_guide_it_goes_on_where_it_was_and_ends_as_if_nothing_had_been(
    tmp_path: Path, expected: list[str]
) -> None:
    group = pods(tmp_path / "run", patched(tmp_path, 1), backend="gloo", checkpoint={"everySteps": 10})
    try:
        group.start()
        until(lambda: list(Checkpoints(group.state_dir)), timeout=250, what="a checkpoint")
        group.pods[1].delete()
        group.pods[1].start()
        assert [pod.wait(250) for pod in group.pods] == [0, 0]
    finally:
        group.stop()
        print(*(pod.output for pod in group.pods))
    assert group.attempt(2)["resumed_from"] >= 10
    assert losses(group.pods[0].output)[-1] == expected[-1]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_with_one_line_more_it_is_sharded_and_learns_the_same(tmp_path: Path, expected: list[str]) -> None:
    config = tmp_path / "train.yaml"
    launch, train = {"script": "x", "procsPerNode": 2}, {"backend": "gloo", "parallel": {"shard": 2}}
    config.write_text(yaml.safe_dump({"launch": launch, "train": train}))
    said = by(*TORCHRUN, script=patched(tmp_path, 2), RANKZERO_CONFIG=str(config))
    ours, theirs = (float(lines[-1].split()[-1]) for lines in (said, expected))
    assert ours == pytest.approx(theirs, rel=0.1)  # sums in another order, over 120 steps
