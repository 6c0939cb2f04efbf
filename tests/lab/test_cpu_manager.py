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

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[1]
FOLDER = "/etc/kubernetes/kubelet.conf.d"
UNIT = "/etc/systemd/system/kubelet.service.d/90-rankzero-cpu-manager.conf"
CONFIG, STATE = "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/cpu_manager_state"
LEAVE: dict[str, Any] = {"cpu_manager_restart_ok": True, "drain_ok": True}
WHOLE_CPU = {"cpu": "1", "memory": "64Mi"}


@pytest.fixture
def folder(lab: None, tmp_path: Path) -> Iterator[Path]:  # noqa: ARG001
    """A folder for plays on the worker, which is afterwards as it was before."""
    try:
        yield tmp_path
    finally:
        execute(NODE.name, "rm", "-f", f"{FOLDER}/50-broken.conf")
        if policy() != "none" or is_there(UNIT):
            play(tmp_path, NODE, "cpu_manager", "reset", **LEAVE, drain_unmanaged_pods="delete")
        kube.kubectl("uncordon", NODE.name)
        gpus.advertise()  # a kubelet that was restarted has forgotten them
        assert (policy(), is_there(UNIT)) == ("none", False)


def switch(folder: Path, **arguments: Any) -> Played:
    return play(folder, NODE, "cpu_manager", **{"cpu_manager_policy": "static", **LEAVE, **arguments})


def policy() -> str:
    state: dict[str, str] = json.loads(execute(NODE.name, "cat", STATE))
    return state["policyName"]


def is_there(path: str) -> bool:
    """Whether the worker has a file."""
    return succeeds("exec", NODE.name, "test", "-e", path)


def ready() -> bool:
    kube.wait_for_kubelet(NODE)
    return not cordoned()


def cpus_of_pod(namespace: Namespace, name: str, **container: Any) -> str:
    """The CPUs that a pod on the worker may run on, by its own kernel's word."""
    words = ["sed", "-n", "s/^Cpus_allowed_list:\\t//p", "/proc/self/status"]
    return namespace.run(name, words, **on(NODE), container=container).strip()


def test_a_whole_cpu_is_a_pod_s_own_and_goes_back_to_all(namespace: Namespace, folder: Path) -> None:
    config, stale = (execute(NODE.name, "cat", path) for path in (CONFIG, STATE))

    switched = switch(folder)
    assert switched.succeeded, switched.output
    assert (switched.report["status"], switched.report["reserved"]) == ("ok", "0")
    assert (policy(), ready()) == ("static", True)
    began = nodes.kubelet_started_at(NODE)
    again = switch(folder)
    assert (again.report["status"], nodes.kubelet_started_at(NODE)) == ("ok", began)
    pinned = cpus_of_pod(namespace, "pinned", resources={"requests": WHOLE_CPU, "limits": WHOLE_CPU})
    assert (pinned, cpus_of_pod(namespace, "shared")) == ("1", "0-1")

    # The state of another policy, as after a change by hand: the kubelet ends whenever it is started.
    execute(NODE.name, "systemctl", "stop", "kubelet")
    execute(NODE.name, "tee", STATE, stdin=stale)
    execute(NODE.name, "systemctl", "start", "kubelet")
    returned = switch(folder, cpu_manager_policy="none")
    assert returned.succeeded, returned.output
    assert (policy(), ready()) == ("none", True)
    free = cpus_of_pod(namespace, "free", resources={"requests": WHOLE_CPU, "limits": WHOLE_CPU})
    assert free == "0-1"
    assert not is_there(UNIT)
    assert execute(NODE.name, "cat", CONFIG) == config


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
    assert not is_there(UNIT)
    assert not is_there("/var/lib/rankzero/cpu_manager.json")


def test_a_change_that_cannot_be_made_or_a_budget_in_the_way_touches_neither_pods_nor_kubelet(
    namespace: Namespace, folder: Path
) -> None:
    pods = started(namespace, deployment("held"), budget("held"))
    began = nodes.kubelet_started_at(NODE)

    refused = switch(folder, cpu_manager_reserved_per_numa=0)
    blocked = switch(folder, drain_timeout=3)

    assert "static policy does not start without reserved CPUs" in refused.report["why"]
    assert "disruption budget held" in blocked.report["why"]
    assert [run.report["status"] for run in (refused, blocked)] == ["failed"] * 2
    assert (on_node(namespace), cordoned(), nodes.kubelet_started_at(NODE)) == (pods, False, began)
