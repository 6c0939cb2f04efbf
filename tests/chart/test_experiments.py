"""The examples in experiments/: each needs an image on the command line and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts.cache import REPO
from tests.chart import kubernetes_types
from tests.chart.rendering import render, run_config
from tests.lab import test_experiments

IMAGE = ["--set", "image.repository=example.com/trainer", "--set", "image.tag=0.1.0"]
EXPERIMENTS = sorted((REPO / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_renders_with_an_image(path: Path, tmp_path: Path) -> None:
    manifests = render(yaml.safe_load(path.read_text(encoding="utf-8")), extra=IMAGE)
    assert [problem for manifest in manifests for problem in kubernetes_types.problems(manifest)] == []
    launch = run_config(manifests, tmp_path).launch
    assert launch.script or launch.command


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_begins_with_the_command_that_starts_it(path: Path) -> None:
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    assert f"charts/rankzero -f experiments/{path.name} --set image.repository=REPOSITORY --set image.tag=TAG" in head


def test_of_each_experiment_it_is_known_whether_it_runs_on_the_local_cluster() -> None:
    lists = (test_experiments.RUNS, test_experiments.TOGETHER, test_experiments.ELSEWHERE, test_experiments.NOT_RUN)
    assert sorted(name for names in lists for name in names) == [path.stem for path in EXPERIMENTS]
    assert [file for file in test_experiments.ELSEWHERE.values() if not (REPO / file).exists()] == []
