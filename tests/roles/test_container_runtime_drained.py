"""Known failure B5: systemd is reloaded under GPUs only on a node of which the cluster says that it is drained."""

from __future__ import annotations

from typing import Any

import pytest

from roles.container_runtime.filter_plugins.container_runtime_drained import undrained
from tests.roles.container_runtime_node import ASKED_UNIT, on, prepared

CORDONED = {"resources": [{"spec": {"unschedulable": True}}]}
OPEN: dict[str, Any] = {"resources": [{"spec": {}}]}
EMPTY: dict[str, Any] = {"resources": []}


def pods(*phases: str, resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    """The pods of a node, one for each phase, that ask for a resource."""
    container = {"resources": {"limits": {resource: "8"}}}
    return {
        "resources": [
            {
                "metadata": {"namespace": "ml", "name": f"run-{index}"},
                "spec": {"containers": [{}, container]},
                "status": {"phase": phase},
            }
            for index, phase in enumerate(phases)
        ]
    }


@pytest.mark.parametrize(
    ("node", "there", "why"),
    [
        (CORDONED, EMPTY, ""),
        (CORDONED, pods("Running", resource="cpu"), ""),
        (CORDONED, pods("Succeeded", "Failed"), ""),
        (OPEN, EMPTY, "the node is not cordoned"),
        (CORDONED, pods("Running"), "GPUs are given to ml/run-0"),
        (CORDONED, pods("Running", resource="nvidia.com/mig-1g.10gb"), "GPUs are given to ml/run-0"),
        (CORDONED, pods(*["Pending"] * 5), "GPUs are given to ml/run-0, ml/run-1, ml/run-2 and 2 more"),
        (EMPTY, EMPTY, "the cluster does not tell whether the node is drained"),
        (CORDONED, {}, "the cluster does not tell whether the node is drained"),
    ],
)
def test_a_node_is_drained_once_it_is_cordoned_and_no_pod_has_gpus(
    node: dict[str, Any], there: dict[str, Any], why: str
) -> None:
    assert undrained([node, there]) == why


def used(cluster: dict[str, Any] | None = None, pods_there: dict[str, Any] | None = None) -> dict[str, Any]:
    """A node whose unit waits for a reload, with a container from before /dev/char named the GPUs."""
    gpus = {"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": 1}
    described = prepared(units={"kubelet": ASKED_UNIT | {"NeedDaemonReload": "yes"}}, gpus=gpus)
    read = {"__container_runtime_object": cluster, "__container_runtime_pods": pods_there}
    return described | {"machine_kubeconfig": "admin.conf"} | {name: told for name, told in read.items() if told}


def reload_ok(described: dict[str, Any], **arguments: Any) -> bool:
    answer: bool = on("__container_runtime_reload_ok", described, **arguments)
    return answer


def test_where_nothing_can_be_cut_off_no_leave_is_needed() -> None:
    assert reload_ok(prepared())
    assert reload_ok(prepared(gpus={"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": 0}))


@pytest.mark.parametrize(
    ("described", "leave", "ok"),
    [
        (used(CORDONED, EMPTY), "true", True),
        (used(CORDONED, EMPTY), "false", False),
        (used(CORDONED, pods("Running")), "true", False),
        (used(OPEN, EMPTY), "true", False),
        (used(), "true", False),
        (used(CORDONED, EMPTY) | {"machine_kubeconfig": ""}, "true", False),
    ],
    ids=["drained", "without leave", "a pod computes", "not cordoned", "not read", "no cluster"],
)
def test_leave_alone_reloads_nothing_under_containers_that_would_lose_their_gpus(
    described: dict[str, Any], leave: str, ok: bool
) -> None:
    assert reload_ok(described, restart_ok=leave) is ok


def test_with_leave_a_node_that_is_not_drained_waits_and_says_what_it_waits_for() -> None:
    report = on("__container_runtime_report", used(CORDONED, pods("Running")), restart_ok=True)

    assert report["status"] == "waiting"
    assert report["why"] == (
        "systemd is not reloaded, which would take the GPUs from running containers, and GPUs are given to ml/run-0."
    )
