"""The whole road, as a person walks it: `make demo` here, and on a cluster that is already there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.cache import REPO
from scripts.lab import kube, programs

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

REPORT = REPO / "build/demo-report.json"


def demo(cluster: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `make demo CLUSTER=...` runs once its tools are there."""
    env = {**os.environ, "BASE": "auto", **environment}
    return subprocess.run(
        [sys.executable, "-m", "scripts.demo", cluster], cwd=REPO, env=env, capture_output=True, text=True, check=False
    )


def helm_on_path() -> str:
    return os.pathsep.join([str(programs.folder("helm")), os.environ["PATH"]])


@pytest.fixture(scope="module")
def report(lab: None) -> dict[str, Any]:  # noqa: ARG001
    """The report of a demo on the local cluster, run once for all tests here."""
    done = demo("lab")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(REPORT.read_text())
    return document


def test_the_run_survives_a_deleted_pod_and_learns_to_read_digits(report: dict[str, Any]) -> None:
    """Known failure A5, on a real cluster."""
    assert report["shortfalls"] == []
    assert report["deleted_pod"] == "mnist-1"
    assert report["attempts"] == 2
    assert report["test_accuracy"] >= 0.965
    assert 0 < report["kill_to_next_step_s"] < 60
    assert 0 <= report["steps_repeated"] <= 60


def test_gpus_were_booked_and_are_free_in_the_end(report: dict[str, Any]) -> None:
    """Known failure A11: a StatefulSet never finishes by itself."""
    assert report["gpus_booked"] == 4
    assert report["gpus_released"] is True
    pods = kube.kubectl("--namespace", "rankzero-demo", "get", "pods", "--output", "name")
    assert pods == ""


def test_the_state_directory_tells_the_story_after_all_pods_are_gone(report: dict[str, Any]) -> None:
    """Known failure A25: the evidence stays."""
    folder = Path(report["files"])
    assert json.loads((folder / "outcome.json").read_text())["state"] == "succeeded"
    first = json.loads((folder / "attempts/0001.json").read_text())
    assert first["cause"]["kind"] == "stopped"
    assert "mnist-1" in first["cause"]["reason"]
    newest = max((folder / "checkpoints").iterdir())
    assert (newest / "MANIFEST.json").exists()


def test_the_status_command_reads_the_outcome_after_the_end(report: dict[str, Any]) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "rankzero", "status", "mnist", "-n", "rankzero-demo", "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(kube.kubeconfig_path())},
        capture_output=True,
        text=True,
        check=True,
    )
    status = json.loads(done.stdout)
    assert status["state"] == "succeeded"
    assert status["outcome"]["result"]["test_accuracy"] == report["test_accuracy"]


def test_the_same_road_on_a_cluster_that_is_already_there(report: dict[str, Any]) -> None:
    """CLUSTER=existing takes the current KUBECONFIG and an image, and builds nothing."""
    done = demo("existing", KUBECONFIG=str(kube.kubeconfig_path()), IMAGE=report["image"], PATH=helm_on_path())
    assert done.returncode == 0, done.stdout + done.stderr
    again = json.loads(REPORT.read_text())
    assert again["run_id"] != report["run_id"]
    assert set(again["stages"]) == {"Checking the cluster", "Installing the experiment", "Training"}


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"IMAGE": ""}, "CLUSTER=existing needs IMAGE"),
        ({"IMAGE": "registry.example/trainer:latest"}, "latest"),
        (
            {"IMAGE": "registry.example/trainer:1", "KUBECONFIG": "/no/such/file"},
            "the kubeconfig /no/such/file cannot be used",
        ),
        ({"IMAGE": "registry.example/trainer:1", "PATH": "/nowhere"}, "helm is not on the PATH"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence_with_its_fix(environment: dict[str, str], sentence: str) -> None:
    done = demo("existing", **{"PATH": helm_on_path(), **environment})
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kubeconfig_that_is_broken_or_leads_nowhere_is_said(tmp_path: Path) -> None:
    broken, nowhere = tmp_path / "broken", tmp_path / "nowhere"
    broken.write_text("clusters: [")
    kubeconfig = kube.kubeconfig_path().read_text().replace("10.210.0.10:6443", "127.0.0.1:1")
    nowhere.write_text(kubeconfig)
    for path, sentence in ((broken, "cannot be used"), (nowhere, "does not answer")):
        done = demo("existing", IMAGE="registry.example/trainer:1", KUBECONFIG=str(path), PATH=helm_on_path())
        assert done.returncode != 0
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
