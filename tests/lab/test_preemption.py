"""A native gang that has to give way does so whole: what is left of it would hold GPUs and train nothing.

The GPUs are an extended resource of a name of their own, one on each worker, so no other pod can be in the way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from scripts.lab import gpus, images, kube
from scripts.lab.settings import WORKERS
from tests.lab import releases
from tests.lab.conftest import Namespace
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

GPU = "rankzero.io/test-preemption"
WITHIN = 150.0


@pytest.fixture
def urgent(lab: None) -> Iterator[str]:  # noqa: ARG001
    """A PriorityClass above all others, and a GPU on each worker to be fought for."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kube.kubectl("create", "priorityclass", name, "--value=100")
    try:
        for node in WORKERS:
            gpus.offer(node, GPU, 1)
        yield name
    finally:
        for node in WORKERS:
            gpus.offer(node, GPU, None)
        kube.kubectl("delete", "priorityclass", name)


def install(namespace: Namespace, release: str, nodes: int, priority: str = "") -> None:
    """A gang with a GPU a pod. Its image has no trainer: where its pods are is all that counts here."""
    releases.install(
        namespace,
        release,
        images.toolbox_reference(),
        nodes=nodes,
        launch={"script": "/none.py"},
        train={"backend": "gloo"},
        resources={"gpus": 1, "gpuResource": GPU, "cpu": "10m", "cpuBurst": True, "memory": "128Mi"},
        checkpoints={"existingClaim": "bound"},
        scheduling={"gang": "native", "priorityClassName": priority},
    )


def placed(namespace: Namespace, release: str) -> int:
    """How many pods of a release have a node and keep it."""
    found = releases.pods(namespace, release).values()
    return sum("nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"] for pod in found)


def preempted(namespace: Namespace) -> int:
    """Events about pods that had to give way."""
    events = namespace.kubectl("get", "events", "--field-selector", "reason=Preempted", "--output", "name")
    return len(events.split())


def test_a_gang_is_preempted_whole_and_comes_back_whole(namespace: Namespace, urgent: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "bound"}, "spec": claim})
    install(namespace, "patient", 2)
    until(lambda: placed(namespace, "patient") == 2, timeout=WITHIN, what="the whole gang")

    install(namespace, "urgent", 1, urgent)
    until(lambda: placed(namespace, "urgent") == 1, timeout=WITHIN, what="the urgent pod")
    # The scheduler needs the GPU of one of them only; the other's makes room for nobody.
    until(lambda: placed(namespace, "patient") == 0, timeout=WITHIN, what="the whole gang gone")
    until(lambda: preempted(namespace) == 2, timeout=WITHIN, what="an Event for each pod")

    releases.uninstall(namespace, "urgent")
    until(lambda: placed(namespace, "patient") == 2, timeout=WITHIN, what="the whole gang again")
