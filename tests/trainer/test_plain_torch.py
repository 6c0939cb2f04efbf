"""A script that imports nothing of rankzero's trains alike wherever it is started."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.launch.pods import REPO, PodGroup

SCRIPT = REPO / "trainer/examples/plain_torch.py"
QUICK = ["--epochs", "2", "--batch-size", "250"]


def losses(output: str) -> list[str]:
    """What it says of each epoch."""
    return re.findall(r"epoch \d+  loss \S+  right while training \S+", output)


def by(*launcher: str) -> list[str]:
    """What it says when another launcher starts it."""
    command = [sys.executable, *launcher, str(SCRIPT), *QUICK]
    return losses(subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout)


def under_rankzero(folder: Path) -> list[str]:
    """What it says in two pods of ours."""
    pods = PodGroup(folder, nodes=2, procs=1, args=[])
    for pod in pods.pods:
        start = {"script": str(SCRIPT), "args": QUICK, "statusPort": pod.status_port}
        pod.config.write_text(yaml.safe_dump({"launch": {**pods.launch, **start}}))
    try:
        pods.start()
        assert [pod.wait(100) for pod in pods.pods] == [0, 0]
    finally:
        pods.stop()
        print(*(pod.output for pod in pods.pods))
    return losses(pods.pods[0].output)


def test_it_imports_nothing_of_ours() -> None:
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "torch" in imported
    assert not [name for name in imported if name.startswith("rankzero")]


@pytest.mark.slow
def test_it_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert len(by()) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_ranks_say_the_same_under_torchrun_and_in_two_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file, unchanged; other ways to start a script are in tests/launch/test_methods.py."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    theirs = by("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert len(theirs) == 2
    assert under_rankzero(tmp_path) == theirs
