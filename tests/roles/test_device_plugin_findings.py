"""Why a node does not offer its GPUs, by what the API, the kubelet's folder and the hardware say together (B30)."""

from __future__ import annotations

from typing import Any

import pytest

from roles.device_plugin.filter_plugins.device_plugin_findings import (
    daemonset,
    findings,
    own_pods,
    rival_names,
    rivals,
    silent,
)

GPU = "nvidia.com/gpu"

DAEMON: dict[str, Any] = {
    "metadata": {
        "name": "nvidia-device-plugin",
        "namespace": "plugins",
        "labels": {"app.kubernetes.io/instance": "ours"},
        "uid": "ds-1",
    },
    "spec": {
        "template": {
            "spec": {
                "containers": [{"image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}],
                "volumes": [{"name": "x", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
            },
        }
    },
    "status": {"desiredNumberScheduled": 2},
}


OURS = ("ours", "plugins")
"""Release and namespace of it."""


POD: dict[str, Any] = {
    "metadata": {"name": "nvidia-device-plugin-abcde", "ownerReferences": [{"uid": "ds-1"}]},
    "spec": {"nodeName": "gpu-01", "runtimeClassName": "nvidia"},
    "status": {"containerStatuses": [{"name": "ctr", "state": {"running": {}}}]},
}


def seen(capacity: int = 8, allocatable: int = 8, wanted: int = 8, **other: Any) -> dict[str, Any]:
    """A node on which all is well, with what is different on top."""
    return {
        "node": {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}},
        "node_name": "gpu-01",
        "daemonset": DAEMON,
        "pods": [POD],
        "events": [],
        "plugin": {"sockets": ["nvidia-gpu.sock"]},
        "expected": {"resources": {GPU: wanted}, "problems": []},
        "offered": {"capacity": {GPU: capacity}, "allocatable": {GPU: allocatable}},
        "labels": {"nvidia.com/gpu.present": "true"},
        "runtime_class": "nvidia",
        "release": "nvidia-device-plugin",
        "namespace": "gpu",
        **other,
    }


def event(name: str, reason: str, message: str, time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"involvedObject": {"name": name}, "reason": reason, "message": message, "lastTimestamp": time}


def whats(given: dict[str, Any]) -> list[str]:
    return [finding["what"] for finding in findings(given)]


def test_a_node_that_offers_what_it_has_and_whose_plugin_answers_has_no_finding() -> None:
    assert findings(seen()) == []


def test_an_unhealthy_card_is_named_with_the_one_thing_that_helps() -> None:
    (finding,) = findings(seen(allocatable=7))

    assert finding["what"] == "1 of 8 nvidia.com/gpu are unhealthy."
    assert "kubectl --namespace gpu delete pod nvidia-device-plugin-abcde" in finding["fix"]


def test_gpus_that_no_plugin_answers_for_are_phantoms_even_if_their_number_is_right() -> None:
    assert "no plugin of it listens" in whats(seen(plugin={"sockets": []}))[0]
    assert "no plugin of it listens" in whats(seen(plugin={"sockets": ["rdma.sock"]}))[0]


def test_a_plugin_that_is_gone_is_not_taken_for_unhealthy_cards() -> None:
    """The kubelet keeps Capacity for minutes after it has lost the plugin."""
    plugin = {"sockets": [], "kubelet": True, "dead_sockets": [], "registered": {}}

    found = whats(seen(allocatable=0, plugin=plugin))

    assert found[0] == f"The plugin of {GPU} is gone; 8 were offered."


def test_each_resource_has_a_socket_of_its_own() -> None:
    resources = {GPU: 1, "nvidia.com/mig-1g.10gb": 2}

    assert silent(resources, ["nvidia-gpu.sock"]) == ["nvidia.com/mig-1g.10gb"]
    assert silent(resources, ["nvidia-gpu.sock", "nvidia-mig-1g.10gb.sock"]) == []


def test_fewer_and_more_than_the_hardware_has_are_both_wrong() -> None:
    assert whats(seen(capacity=7, allocatable=7)) == ["The node offers 7 nvidia.com/gpu; its hardware comes to 8."]
    assert "more than the 8" in whats(seen(capacity=32, allocatable=32))[0]


def test_an_unlabelled_node_of_which_the_daemonset_wants_nothing_is_named_by_the_label() -> None:
    bare = seen(0, 0, pods=[], node={"metadata": {"labels": {}}})

    assert "takes no node without nvidia.com/gpu.present=true" in whats(bare)[1]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"daemonset": {}, "pods": []}, "has no DaemonSet that mounts"),
        ({"pods": []}, "has no pod on this node (it wants 2 in all)"),
        (
            {
                "pods": [],
                "events": [event(DAEMON["metadata"]["name"], "FailedCreate", 'RuntimeClass "nvidia" not found')],
            },
            'RuntimeClass "nvidia" not found',
        ),
        (
            {
                "events": [
                    event(
                        POD["metadata"]["name"],
                        "FailedCreatePodSandBox",
                        'failed to get sandbox runtime: no runtime for "nvidia" is configured',
                    )
                ]
            },
            'no runtime for "nvidia" is configured',
        ),
        (
            {"pods": [{**POD, "spec": {"nodeName": "gpu-01"}}]},
            "runs under the default runtime, not RuntimeClass nvidia",
        ),
        (
            {
                "pods": [
                    {
                        **POD,
                        "status": {
                            "containerStatuses": [
                                {
                                    "name": "ctr",
                                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                                    "lastState": {
                                        "terminated": {"message": "nvml init failed: ERROR_LIBRARY_NOT_FOUND\n"}
                                    },
                                }
                            ]
                        },
                    }
                ]
            },
            "waits: CrashLoopBackOff: nvml init failed: ERROR_LIBRARY_NOT_FOUND",
        ),
    ],
)
def test_the_cause_is_followed_down_to_the_first_break(other: dict[str, Any], words: str) -> None:
    amount, cause = whats(seen(0, 0, **other))

    assert amount.startswith("The node offers 0")
    assert words in cause


def test_of_repeated_events_the_newest_speaks() -> None:
    name = POD["metadata"]["name"]
    events = [
        event(name, "FailedCreatePodSandBox", "no runtime for new", "2026-01-02T00:00:00Z"),
        event(name, "FailedCreatePodSandBox", "no runtime for old", "2026-01-01T00:00:00Z"),
    ]

    assert "new" in whats(seen(0, 0, events=events))[1]


def test_the_daemonset_is_the_one_that_serves_the_kubelet() -> None:
    other = {**DAEMON, "metadata": {**DAEMON["metadata"], "name": "mps"}, "spec": {"template": {"spec": {}}}}

    assert daemonset([other, DAEMON], *OURS) == DAEMON
    assert daemonset([other], *OURS) == daemonset([], *OURS) == {}
    assert daemonset([DAEMON], "other", "plugins") == daemonset([DAEMON], "ours", "elsewhere") == {}


def with_image(image: str) -> dict[str, Any]:
    spec = DAEMON["spec"]["template"]["spec"] | {"containers": [{"image": image}]}
    of = {"name": "other", "namespace": "elsewhere", "uid": "ds-2"}
    return {**DAEMON, "metadata": of, "spec": {"template": {"spec": spec}}}


def test_another_plugin_for_the_same_gpus_is_a_rival_on_the_nodes_where_it_runs() -> None:
    operator = with_image("nvcr.io/nvidia/k8s-device-plugin:v0.17.1")
    pod = {**POD, "metadata": {"name": "other-x", "ownerReferences": [{"uid": "ds-2"}]}}

    assert rivals([DAEMON, operator], *OURS) == [operator]
    assert rivals([with_image("projecthami/hami:v2.10.0")], *OURS) != []
    assert rivals([with_image("ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5")], *OURS) == []
    assert rival_names([POD, pod], [operator], "gpu-01") == ["elsewhere/other"]
    assert rival_names([POD, pod], [operator], "gpu-02") == []


def test_pods_of_other_nodes_and_other_owners_are_not_the_plugin_s() -> None:
    elsewhere = {**POD, "spec": {"nodeName": "gpu-02"}}
    foreign = {**POD, "metadata": {"name": "x", "ownerReferences": [{"uid": "ds-2"}]}}

    assert own_pods([elsewhere, foreign, POD], DAEMON, "gpu-01") == [POD]
