"""Scripts that are not in the image, and know nothing of rankzero, train to the end on the real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.cache import REPO
from scripts.lab import trainer_image
from scripts.lab.podman import execute
from scripts.lab.settings import STORAGE_CLASS, WORKERS
from scripts.stages import Stages
from tests.lab import releases
from tests.lab.conftest import WAIT, Namespace, pod

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[1]
SCRIPT = (REPO / "tests/launch/plain_ddp.py").read_text(encoding="utf-8")
SMALL: dict[str, Any] = {
    "resources": {"gpus": 0, "cpu": "100m", "cpuBurst": True, "memory": "2Gi"},
    "checkpoints": {"size": "1Gi"},
}
TWO_BY_TWO: dict[str, Any] = {
    "workload": {"kind": "Job"},
    "nodes": 2,
    "procsPerNode": 2,
    "launch": {"script": "/workspace/train.py", "args": ["/checkpoints"]},
    **SMALL,
}
SERVE = """
git init --quiet --initial-branch=main /tmp/code && cd /tmp/code && printf '%s' "$SCRIPT" > train.py && git add train.py
git -c user.name=a -c user.email=a@example.com commit --quiet --message one && git rev-parse HEAD
exec git daemon --reuseaddr --export-all --base-path=/tmp
"""


@pytest.fixture(scope="module")
def image(lab: None) -> str:  # noqa: ARG001
    """The trainer image, on the workers already."""
    return trainer_image.provide_on_nodes(Stages())


def finished(namespace: Namespace, job: str) -> str:
    """What rank 0 of a Job said, once the Job is complete."""
    namespace.kubectl("wait", "--for=condition=Complete", f"job/{job}", WAIT)
    return namespace.kubectl("logs", "--selector=batch.kubernetes.io/job-completion-index=0", "--tail=-1")


def test_a_script_from_the_values_trains_two_pods(namespace: Namespace, image: str) -> None:
    releases.install(namespace, "try", image, **{**TWO_BY_TWO, "code": {"files": {"train.py": SCRIPT}}})
    assert "rank 0 of 4 has trained" in finished(namespace, "try")


def test_a_git_revision_is_fetched_into_each_pod_and_trains(namespace: Namespace, image: str) -> None:
    """From git's own server in the cluster."""
    environment = [{"name": "SCRIPT", "value": SCRIPT}]
    namespace.apply(
        pod(
            "git",
            SERVE,
            container={"image": image, "env": environment, "readinessProbe": {"tcpSocket": {"port": 9418}}},
        ),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "git"},
            "spec": {"selector": {"app": "git"}, "ports": [{"port": 9418}]},
        },
    )
    namespace.kubectl("wait", "--for=condition=Ready", "pod/git", WAIT)
    commit = namespace.kubectl("logs", "git").split()[0]
    code = {"git": {"repository": "git://git/code", "revision": commit}}
    releases.install(namespace, "fetched", image, **{**TWO_BY_TWO, "code": code})
    assert "rank 0 of 4 has trained" in finished(namespace, "fetched")
    fetched = namespace.kubectl("logs", "--selector=app.kubernetes.io/instance=fetched", "--container=code")
    assert fetched.count(f"{commit} of git://git/code is commit {commit}") == 2


@pytest.fixture
def folders() -> Iterator[tuple[str, str]]:
    """On one node, as the experiment says: the folder with the code, and the one for checkpoints."""
    code, state = "/opt/training-code", "/var/lib/training"
    execute(NODE.name, "install", "-d", "-o", "1000", "-g", "1000", code, state)
    execute(NODE.name, "tee", f"{code}/train.py", stdin=SCRIPT)
    try:
        yield code, state
    finally:
        execute(NODE.name, "rm", "-rf", code, state)


def claim(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": STORAGE_CLASS}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}},
    }


def test_a_single_pod_trains_from_folders_of_its_node_and_a_reinstalled_one_finds_its_state(
    namespace: Namespace, image: str, folders: tuple[str, str]
) -> None:
    """The K3s guide's pod: code in a folder of the node, which the script also writes to; models and data on claims."""
    code, state = folders
    namespace.apply(claim("nfs-modelscope"), claim("nfs-training-data"))
    own: dict[str, Any] = {
        "launch": {"args": ["/workspace"]},
        "resources": {"cpu": "100m", "cpuBurst": True, "memory": "2Gi"},
        # This cluster has no runtime for GPUs.
        "scheduling": {"nodeSelector": {"kubernetes.io/hostname": NODE.name}, "runtimeClassName": ""},
    }
    for install in range(2):
        releases.install(namespace, "train", image, "experiments/k3s-host-path.yaml", **own)
        namespace.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/train", WAIT)
        said = namespace.kubectl("logs", "train")
        assert ("this run has succeeded before" in said) is bool(install)
        assert ("rank 0 of 2 has trained" in said) is not bool(install)
        releases.uninstall(namespace, "train")
    assert execute(NODE.name, "ls", code).split() == ["rank-0.json", "rank-1.json", "train.py"]
    assert "outcome.json" in execute(NODE.name, "ls", f"{state}/train/main")
