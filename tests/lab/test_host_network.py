"""Releases on the network of the nodes: beside each other, and with interfaces from the nodes' profiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from rankzero.cluster.status import collect
from scripts.command import CommandError
from scripts.lab import kube, trainer_image
from scripts.lab.podman import execute
from scripts.lab.settings import WORKERS
from scripts.stages import Stages
from tests.lab import releases
from tests.lab.conftest import Namespace
from tests.lab.plays import play
from tests.lab.test_node_profile import CONTENT, OTHERS, SKIPPED
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900, func_only=True)]

ENDS_WITHIN = 300.0
FROM_PROFILE = {"network": {"hostNetwork": True, "fromNodeProfile": True}, "scheduling": {"nodeProfile": "required"}}


@pytest.fixture(scope="module")
def image(lab: None) -> str:  # noqa: ARG001
    """The trainer image, on the workers already."""
    return trainer_image.provide_on_nodes(Stages())


def start(namespace: Namespace, name: str, image: str, steps: int, **values: Any) -> Run:
    """Install the drill's training; two pods on the network of the two workers."""
    launch = {"args": ["--pace", "0.1", "--steps", str(steps)]}
    given = {"network": {"hostNetwork": True}, "launch": launch, **values}
    releases.install(namespace, name, image, "experiments/drill.yaml", **given)
    return Run(connect(str(kube.kubeconfig_path())), namespace.name, name)


def succeeds(run: Run) -> dict[str, Any]:
    """What status says of the run once it has ended well."""

    def look() -> dict[str, Any]:
        document = collect(run)
        assert document["state"] != "failed", document
        return document if document["state"] == "succeeded" else {}

    return until(look, timeout=ENDS_WITHIN, what=f"{run.name} has succeeded")


def test_two_releases_share_the_nodes_and_both_train_to_the_end(namespace: Namespace, image: str) -> None:
    """Known failure A17."""
    runs = [start(namespace, name, image, 100) for name in ("first", "second")]

    def running() -> list[dict[str, Any]]:
        pods = [pod for run in runs for pod in releases.pods(namespace, run.name).values()]
        return pods if [pod["status"]["phase"] for pod in pods] == 4 * ["Running"] else []

    pods = until(running, timeout=ENDS_WITHIN, what="all pods of both run at the same time")
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(2 * [node.name for node in WORKERS])
    assert all(pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in pods)
    for run in runs:
        assert len(succeeds(run)["outcome"]["attempts"]) == 1


@pytest.fixture
def folder(lab: None, tmp_path: Path) -> Iterator[Path]:  # noqa: ARG001
    """A folder for the role's passports; no worker has a profile afterwards."""
    try:
        yield tmp_path
    finally:
        for node in WORKERS:
            play(tmp_path, node, "node_profile", "reset")


def profile(folder: Path) -> None:
    """Let the role write the profile of both workers; that the other roles are content is said for them."""
    given: dict[str, Any] = {f"{role}_report": SKIPPED for role in OTHERS}
    for node in WORKERS:
        played = play(
            folder, node, "node_profile", **given, node_profile_passports=str(folder), host_tuning_report=CONTENT
        )
        assert played.succeeded, played.output


def test_an_interface_of_the_profile_that_the_node_no_longer_has_is_named(
    folder: Path, namespace: Namespace, image: str
) -> None:
    """What shows that ranks are told of the profile: without it the launcher finds eth0 by itself."""
    profile(folder)
    for node in WORKERS:
        execute(node.name, "sed", "-i", "s/eth0/gone0/g", contract.NODE_PROFILE_FILE)
    start(namespace, "train", image, 100, **FROM_PROFILE)

    def said() -> str:
        try:
            text = namespace.kubectl("logs", "--selector", "app.kubernetes.io/instance=train", "--tail", "-1")
        except CommandError:  # a container that has not been started yet
            return ""
        return text if "gone0" in text else ""

    assert "this node's profile names gone0" in until(said, timeout=ENDS_WITHIN, what="gone0 in the logs")
