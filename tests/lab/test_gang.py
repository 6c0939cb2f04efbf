"""Gangs: nodes with 3 and 5 free GPUs never hold half of a group that wants 4 and 4.

The GPUs are an extended resource of a name of their own, advertised as the API documents it; the scheduler, Kueue and
the chart are real. Close behind known failures A: a job admitted with half of its GPUs waits for ever, holding them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from scripts.command import CommandError
from scripts.generate import upgrades
from scripts.lab import gpus, images
from scripts.lab.operators import install as operators
from scripts.lab.settings import WORKERS
from scripts.stages import Stages
from tests.lab import judgements, releases
from tests.lab.conftest import WAIT, Namespace
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

GPU = "rankzero.io/test-gpu"
FREE = (3, 5)
"""On the first and on the second worker."""
DECIDED_WITHIN = 150.0
QUEUE = "train"


@pytest.fixture(scope="module")
def free_gpus(lab: None) -> Iterator[None]:  # noqa: ARG001
    """As the module says; no other test's pods ask for this resource."""
    try:
        for node, free in zip(WORKERS, FREE, strict=True):
            gpus.offer(node, GPU, free)
        yield
    finally:
        for node in WORKERS:
            gpus.offer(node, GPU, None)


def values(gpus: int, kind: str, scheduling: Mapping[str, object]) -> dict[str, Any]:
    """A group of two pods. Their image has no trainer: where they are placed is all that counts here."""
    return {
        "workload": {"kind": kind},
        "nodes": 2,
        "launch": {"script": "/none.py"},
        "train": {"backend": "gloo"},
        "resources": {"gpus": gpus, "gpuResource": GPU, "cpu": "10m", "cpuBurst": True, "memory": "256Mi"},
        "checkpoints": {"existingClaim": "bound"},
        "scheduling": scheduling,
    }


def install(namespace: Namespace, gpus: int, kind: str = "StatefulSet", **scheduling: object) -> None:
    """Install such a group."""
    # A claim that is bound already, or the scheduler's first word on the pods would be about that.
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "bound"}, "spec": claim})
    namespace.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/bound", WAIT)
    releases.install(namespace, "gang", images.toolbox_reference(), **values(gpus, kind, scheduling))


def placed(namespace: Namespace) -> list[str]:
    """The nodes that hold pods of the group."""
    found = releases.pods(namespace, "gang").values()
    return sorted(pod["spec"]["nodeName"] for pod in found if "nodeName" in pod["spec"])


def refused(namespace: Namespace) -> list[str]:
    """What the scheduler says of each pod for which it has found no place."""
    found = releases.pods(namespace, "gang").values()
    conditions = [condition for pod in found for condition in pod["status"].get("conditions", [])]
    return [one["message"] for one in conditions if one.get("reason") == "Unschedulable"]


def bindings(namespace: Namespace) -> int:
    """How often a pod of the namespace has been given a node, also such as are gone again."""
    events = namespace.kubectl("get", "events", "--field-selector", "reason=Scheduled", "--output", "name")
    return len(events.split())


def wait_until_decided(namespace: Namespace) -> None:
    """Both pods have been looked at, whatever came of it."""
    until(
        lambda: len(placed(namespace)) + len(refused(namespace)) == 2,
        timeout=DECIDED_WITHIN,
        what="the scheduler's word on both pods",
    )


@pytest.mark.usefixtures("free_gpus")
def test_without_a_gang_half_of_a_group_holds_gpus_that_it_cannot_use(namespace: Namespace) -> None:
    install(namespace, 4)
    wait_until_decided(namespace)
    assert placed(namespace) == [WORKERS[1].name]


@pytest.mark.parametrize("kind", ["StatefulSet", pytest.param("Job", marks=pytest.mark.long)])
@pytest.mark.usefixtures("free_gpus")
def test_a_native_gang_that_fits_no_set_of_nodes_takes_none(namespace: Namespace, kind: str) -> None:
    install(namespace, 4, kind, gang="native")
    wait_until_decided(namespace)
    assert placed(namespace) == []
    assert bindings(namespace) == 0
    group = json.loads(namespace.kubectl("get", "podgroups.scheduling.k8s.io", "--output", "json"))["items"]
    assert [one["spec"]["schedulingPolicy"] for one in group] == [{"gang": {"minCount": 2}}]


@pytest.mark.usefixtures("free_gpus")
def test_a_native_gang_that_fits_is_placed_whole(namespace: Namespace) -> None:
    install(namespace, 3, gang="native")
    until(lambda: placed(namespace) == [node.name for node in WORKERS], timeout=DECIDED_WITHIN, what="the whole group")


@pytest.fixture(scope="module")
def kueue(lab: None) -> Iterator[None]:  # noqa: ARG001
    """Kueue itself, with a quota of all the free GPUs."""
    try:
        operators.up(Stages(), ["kueue"])
        yield
    finally:
        operators.down(Stages(), ["kueue"])


@pytest.fixture
def queue(kueue: None, namespace: Namespace) -> Namespace:  # noqa: ARG001
    """A namespace with a queue, whose quota is the GPUs of both nodes together."""
    version = "kueue.x-k8s.io/v1beta2"
    quota = {GPU: sum(FREE), "cpu": 8, "memory": "16Gi"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    flavor = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": namespace.name}}
    cluster_queue = {
        "apiVersion": version,
        "kind": "ClusterQueue",
        "metadata": {"name": namespace.name},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
            "resourceGroups": [
                {"coveredResources": [*quota], "flavors": [{"name": namespace.name, "resources": resources}]}
            ],
        },
    }
    local_queue = {
        "apiVersion": version,
        "kind": "LocalQueue",
        "metadata": {"name": QUEUE},
        "spec": {"clusterQueue": namespace.name},
    }
    namespace.apply(flavor, cluster_queue, local_queue)
    return namespace


def admitted(namespace: Namespace) -> bool:
    """Whether Kueue has given the group its quota."""
    # In full: Kubernetes has workloads of its own.
    found = namespace.kubectl("get", "workloads.kueue.x-k8s.io", "--output", "json")
    conditions = [one for workload in json.loads(found)["items"] for one in workload["status"].get("conditions", [])]
    return any(one["type"] == "Admitted" and one["status"] == "True" for one in conditions)


@pytest.mark.long
@pytest.mark.usefixtures("free_gpus")
def test_kueue_alone_admits_what_fits_its_quota_and_no_set_of_nodes(queue: Namespace) -> None:
    """Kueue counts quota, not nodes: why the chart says to set a gang beside the queue."""
    install(queue, 4, kueue={"queue": QUEUE})
    until(lambda: admitted(queue), timeout=DECIDED_WITHIN, what="Kueue's admission")
    wait_until_decided(queue)
    assert placed(queue) == [WORKERS[1].name]


@pytest.mark.long
@pytest.mark.usefixtures("free_gpus")
def test_kueue_and_a_native_gang_place_nothing_in_part(queue: Namespace) -> None:
    install(queue, 4, kueue={"queue": QUEUE}, gang="native")
    until(lambda: admitted(queue), timeout=DECIDED_WITHIN, what="Kueue's admission")
    wait_until_decided(queue)
    assert placed(queue) == []
    assert bindings(queue) == 0


@pytest.mark.long
@pytest.mark.usefixtures("free_gpus")
def test_what_exceeds_the_quota_waits_in_the_queue_and_no_scheduler_sees_it(queue: Namespace) -> None:
    install(queue, 5, kueue={"queue": QUEUE}, gang="native")
    waiting = "jsonpath={.status.conditions[?(@.type=='QuotaReserved')].reason}=Pending"
    until(
        lambda: queue.kubectl("get", "workloads.kueue.x-k8s.io", "--output", "name"),
        timeout=DECIDED_WITHIN,
        what="Kueue's workload",
    )
    queue.kubectl("wait", f"--for={waiting}", "workloads.kueue.x-k8s.io", "--all", WAIT)
    assert placed(queue) == []


@pytest.mark.long
@pytest.mark.usefixtures("free_gpus")
def test_kueue_and_a_native_gang_place_a_group_that_fits(queue: Namespace) -> None:
    install(queue, 3, kueue={"queue": QUEUE}, gang="native")
    until(lambda: placed(queue) == [node.name for node in WORKERS], what="the whole group")


@pytest.mark.long
def test_kueue_refuses_what_the_guide_says_is_refused_and_nothing_else(queue: Namespace) -> None:
    """Known failure A13."""
    judgements.hold(queue, upgrades.QUEUED)


@pytest.mark.long
@pytest.mark.usefixtures("free_gpus")
def test_an_upgrade_that_kueue_takes_replaces_the_pods_within_their_quota_and_another_size_is_refused(
    queue: Namespace,
) -> None:
    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in releases.pods(queue, "gang").values()}

    def is_whole() -> bool:
        return placed(queue) == [node.name for node in WORKERS]

    waits = {"kueue": {"queue": QUEUE}}
    image, group = images.toolbox_reference(), values(3, "StatefulSet", waits)
    install(queue, 3, kueue=waits["kueue"])
    until(is_whole, what="the whole group")
    before = uids()
    with pytest.raises(CommandError, match=r"spec\.replicas: Invalid value: 3: field is immutable"):
        releases.upgrade(queue, "gang", image, **{**group, "nodes": 3})
    assert uids() == before
    releases.upgrade(queue, "gang", image, **group, run={"id": "second"})
    until(lambda: is_whole() and not uids() & before, what="the whole group, of new pods")
