"""What the cluster promises to everything that runs on it, and what `make lab` promises to its user."""

from __future__ import annotations

import json
import stat
import time

import pytest

from rankzero import contract
from scripts.lab import cluster, gpus, kube, nodes, programs
from scripts.lab.podman import execute, podman, remove_containers
from scripts.lab.settings import GPUS_PER_WORKER, NODES, STORAGE_CLASS, WORKERS
from scripts.stages import Stages
from tests.lab.conftest import WAIT, Namespace, on, pod

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab"), pytest.mark.timeout(900, func_only=True)]

FIRST, SECOND = WORKERS
SECOND_UP_WITHIN = 100.0
"""Seconds; 4 on a quiet machine, and to build a cluster takes minutes."""
"""Seconds: the promise of `make lab` on a running cluster."""


def test_all_three_nodes_are_ready_and_the_workers_look_like_gpu_nodes() -> None:
    ready = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'
    assert set(kube.kubectl("get", "nodes", "--output", f"jsonpath={ready}").split()) == {
        f"{node.name}=True" for node in NODES
    }
    labelled = kube.kubectl("get", "nodes", "--selector", f"{gpus.PRESENT_LABEL}=true", "--output", "name").split()
    assert labelled == [f"node/{node.name}" for node in WORKERS]


def test_every_node_runs_the_pinned_version_of_kubernetes() -> None:
    version = "{.items[*].status.nodeInfo.kubeletVersion}"
    found = kube.kubectl("get", "nodes", "--output", f"jsonpath={version}").split()
    assert found == [programs.kubernetes_version()] * len(NODES)
    assert json.loads(kube.kubectl("get", "--raw", "/version"))["gitVersion"] == programs.kubernetes_version()


def test_only_its_owner_can_read_the_kubeconfig() -> None:
    assert stat.S_IMODE(kube.kubeconfig_path().stat().st_mode) == 0o600


def test_pods_of_two_workers_reach_each_other_by_the_names_of_a_headless_service(namespace: Namespace) -> None:
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "peer"}}
    peer = pod("peer", "exec python3 -m http.server 8000", hostname="peer", subdomain="peers", **on(FIRST))
    namespace.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": service}, peer)
    # As a trainer does: ask for the name until it is there, then for the port until it is open.
    call = """
import socket, time
while True:
    try:
        connection = socket.create_connection(("peer.peers", 8000), timeout=2)
        break
    except OSError:
        time.sleep(0.2)
print(connection.getpeername()[0])
"""
    address = namespace.run("caller", ["python3", "-c", call], **on(SECOND))
    assert address.strip() == namespace.kubectl("get", "pod", "peer", "--output", "jsonpath={.status.podIP}")


def test_a_file_that_an_ordinary_user_writes_on_one_worker_is_read_on_the_other(namespace: Namespace) -> None:
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    mount = {"container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}}
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    user = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}}
    namespace.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim},
    )
    namespace.run("writer", "mkdir /data/run && echo hello > /data/run/file", **mount, **volume, **user, **on(FIRST))
    assert namespace.run("reader", "cat /data/run/file", **mount, **volume, **user, **on(SECOND)) == "hello\n"
    assert namespace.kubectl("get", "pvc", "data", "--output", "jsonpath={.spec.storageClassName}") == STORAGE_CLASS, (
        "a claim without a class gets the shared one"
    )


def test_a_pod_gets_eight_gpus_of_a_worker_and_nine_keep_it_waiting(namespace: Namespace) -> None:
    assert gpus.advertised() == {node.name: GPUS_PER_WORKER for node in WORKERS}

    def wanting(count: int) -> dict[str, object]:
        return {"container": {"resources": {"limits": {contract.GPU_RESOURCE: str(count)}}}}

    namespace.run("all-of-one", "true", **wanting(GPUS_PER_WORKER))
    namespace.apply(pod("too-many", "true", **wanting(GPUS_PER_WORKER + 1)))
    namespace.kubectl("wait", "--for=condition=PodScheduled=false", "pod/too-many", WAIT)
    (condition,) = json.loads(namespace.kubectl("get", "pod", "too-many", "--output", "json"))["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert f"2 Insufficient {contract.GPU_RESOURCE}" in condition["message"]


def test_gpus_that_are_gone_are_there_again_after_a_restarted_kubelet_and_an_advertisement() -> None:
    none = {contract.GPU_RESOURCE: "0"}
    patch = json.dumps({"status": {"capacity": none, "allocatable": none}})
    kube.kubectl("patch", "node", FIRST.name, "--subresource", "status", "--type", "merge", "--patch", patch)
    execute(FIRST.name, "systemctl", "restart", "kubelet")
    kube.wait_for_kubelet(FIRST)
    assert gpus.advertised()[FIRST.name] == 0
    gpus.advertise()
    assert gpus.advertised() == {node.name: GPUS_PER_WORKER for node in WORKERS}


def test_a_gang_that_does_not_fit_as_a_whole_is_not_started_in_part(namespace: Namespace) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": len(WORKERS) + 1}}},
    }
    whole_worker = {"container": {"resources": {"limits": {contract.GPU_RESOURCE: str(GPUS_PER_WORKER)}}}}
    names = [f"member-{index}" for index in range(len(WORKERS) + 1)]
    member = {"schedulingGroup": {"podGroupName": "gang"}, **whole_worker}
    namespace.apply(group, *(pod(name, "true", **member) for name in names))
    for name in names:
        namespace.kubectl("wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", f"pod/{name}", WAIT)
    assigned = namespace.kubectl("get", "pods", "--output", "jsonpath={.items[*].spec.nodeName}")
    assert assigned == ""


def test_bringing_a_running_cluster_up_again_takes_a_moment() -> None:
    began = time.monotonic()
    cluster.up(Stages())
    assert time.monotonic() - began < SECOND_UP_WITHIN


def test_a_worker_whose_container_was_removed_comes_back_and_runs_pods(namespace: Namespace) -> None:
    remove_containers(SECOND.name)
    cluster.up(Stages())
    assert namespace.run("after", "hostname -f >/dev/null; echo runs", **on(SECOND)) == "runs\n"
    assert gpus.advertised()[SECOND.name] == GPUS_PER_WORKER


def test_killed_nodes_come_back_as_after_a_power_cut(namespace: Namespace) -> None:
    namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "1"}})
    podman("kill", *(node.name for node in NODES))
    cluster.up(Stages())
    assert namespace.kubectl("get", "configmap", "kept", "--output", "jsonpath={.data.a}") == "1"
    assert namespace.run("after", "echo runs", **on(FIRST)) == "runs\n"
    assert gpus.advertised() == {node.name: GPUS_PER_WORKER for node in WORKERS}


def test_stopped_services_of_a_node_are_started() -> None:
    execute(FIRST.name, "systemctl", "stop", "kubelet", "containerd")
    assert nodes.restart_dead_services(FIRST) == ["containerd", "kubelet"]
    kube.wait_for_kubelet(FIRST)
    gpus.advertise()
