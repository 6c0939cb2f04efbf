"""The role cpu_manager on a real kubelet: CPUs are really pinned, and whatever fails leaves the node as it was.

Known failures B 1 (the state file remembers the old policy), B 2 (no reservation), B 27 (kubeadm's file is left alone).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lab import gpus, kube, nodes
from scripts.lab.podman import execute, succeeds
from scripts.lab.settings import WORKERS
from tests.lab.conftest import Namespace, on
from tests.lab.plays import Played, play
from tests.lab.test_drain import budget, cordoned, deployment, on_node, started

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

NODE = WORKERS[1]
FOLDER = "/etc/kubernetes/kubelet.conf.d"
UNIT = "/etc/systemd/system/kubelet.service.d/90-rankzero-cpu-manager.conf"
LEAVE: dict[str, Any] = {"cpu_manager_restart_ok": True, "drain_ok": True}
WHOLE_CPU = {"cpu": "1", "memory": "64Mi"}


@pytest.fixture
def folder(lab: None, tmp_path: Path) -> Iterator[Path]:  # noqa: ARG001
    """A folder for plays on the worker, which is afterwards as it was before."""
    try:
        yield tmp_path
    finally:
        execute(NODE.name, "rm", "-f", f"{FOLDER}/50-broken.conf")
        played = play(tmp_path, NODE, "cpu_manager", "reset", **LEAVE, drain_unmanaged_pods="delete")
        kube.kubectl("uncordon", NODE.name)
        gpus.advertise()  # a kubelet that was restarted has forgotten them
        assert played.succeeded, played.output


def switch(folder: Path, **arguments: Any) -> Played:
    return play(folder, NODE, "cpu_manager", **{**LEAVE, **arguments})


def policy() -> str:
    state: dict[str, str] = json.loads(execute(NODE.name, "cat", "/var/lib/kubelet/cpu_manager_state"))
    return state["policyName"]


def ready() -> bool:
    kube.wait_for_kubelet(NODE)
    return not cordoned()


def cpus_of_pod(namespace: Namespace, name: str, **container: Any) -> str:
    """The CPUs that a pod on the worker may run on, by its own kernel's word."""
    words = ["sed", "-n", "s/^Cpus_allowed_list:\\t//p", "/proc/self/status"]
    return namespace.run(name, words, **on(NODE), container=container).strip()


def test_a_whole_cpu_is_a_pod_s_own_and_goes_back_to_all(namespace: Namespace, folder: Path) -> None:
    config = execute(NODE.name, "cat", "/var/lib/kubelet/config.yaml")
    began = nodes.kubelet_started_at(NODE)
    waiting = play(folder, NODE, "cpu_manager")
    assert waiting.report["status"] == "waiting"
    assert "cpu_manager_restart_ok=true" in waiting.report["why"]
    assert (nodes.kubelet_started_at(NODE), cordoned()) == (began, False)

    switched = switch(folder)
    assert switched.succeeded, switched.output
    assert (switched.report["status"], switched.report["reserved"]) == ("ok", "0")
    assert (policy(), ready()) == ("static", True)
    began = nodes.kubelet_started_at(NODE)
    again = switch(folder)
    assert (again.report["status"], nodes.kubelet_started_at(NODE)) == ("ok", began)
    pinned = cpus_of_pod(namespace, "pinned", resources={"requests": WHOLE_CPU, "limits": WHOLE_CPU})
    assert (pinned, cpus_of_pod(namespace, "shared")) == ("1", "0-1")

    returned = switch(folder, cpu_manager_policy="none")
    assert returned.succeeded, returned.output
    assert (policy(), ready()) == ("none", True)
    free = cpus_of_pod(namespace, "free", resources={"requests": WHOLE_CPU, "limits": WHOLE_CPU})
    assert free == "0-1"
    assert not succeeds("exec", NODE.name, "test", "-e", UNIT)
    assert execute(NODE.name, "cat", "/var/lib/kubelet/config.yaml") == config


def test_a_kubelet_that_does_not_start_gets_its_old_files_and_its_words_are_told(folder: Path) -> None:
    # Somebody's slip in the folder that the kubelet is about to read.
    execute(NODE.name, "mkdir", "-p", FOLDER)
    execute(NODE.name, "tee", f"{FOLDER}/50-broken.conf", stdin="kind: KubeletConfiguration\nmaxPods: many\n")

    played = switch(folder)

    assert not played.succeeded
    assert played.report["status"] == "failed"
    assert "50-broken.conf" in played.report["why"]
    assert "It runs as before again" in played.report["why"]
    assert (policy(), ready()) == ("none", True)
    assert not succeeds("exec", NODE.name, "test", "-e", UNIT)
    assert not succeeds("exec", NODE.name, "test", "-e", "/var/lib/rankzero/cpu_manager.json")


def test_a_change_that_cannot_be_made_or_a_budget_in_the_way_touches_neither_pods_nor_kubelet(
    namespace: Namespace, folder: Path
) -> None:
    pods = started(namespace, deployment("held"), budget("held"))
    began = nodes.kubelet_started_at(NODE)

    refused = switch(folder, cpu_manager_reserved_per_numa=0)
    unknown = switch(folder, cpu_manager_policy_options=["full-cores"])
    blocked = switch(folder, drain_timeout=3)

    assert "static policy does not start without reserved CPUs" in refused.report["why"]
    assert "full-cores, which the kubelet" in unknown.report["why"]
    assert "disruption budget held" in blocked.report["why"]
    assert [run.report["status"] for run in (refused, unknown, blocked)] == ["failed"] * 3
    assert (on_node(namespace), cordoned(), nodes.kubelet_started_at(NODE)) == (pods, False, began)
