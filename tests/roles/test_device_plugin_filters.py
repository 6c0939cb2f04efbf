"""What is deployed for each kind of plugin, what a node should then offer, and what is said where it does not.

The behaviour of the real plugins that these tests hold was measured by hand; it covers known failures B11, B12 and B30.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from roles.device_plugin.filter_plugins.device_plugin import brief, expected, label_plan, program, values
from roles.device_plugin.filter_plugins.device_plugin_findings import (
    daemonset,
    findings,
    own_pods,
    rival_names,
    rivals,
    silent,
)
from scripts.cache import REPO
from tests.roles.templating import load

DGX = load(REPO / "tests/roles/samples/dgx-h100.yml")
GPU = "nvidia.com/gpu"


def settings(**other: Any) -> dict[str, Any]:
    return {
        "kind": "nvidia",
        "image_registry": "",
        "runtime_class": "nvidia",
        "device_list_strategy": "envvar",
        "pass_device_specs": True,
        "driver_root": "/",
        "mig_strategy": "none",
        "time_slicing": 1,
        "split_count": 10,
        **other,
    }


def with_mig(profiles: dict[int, list[str]]) -> dict[str, Any]:
    """The DGX with MIG on for some cards, by their index."""
    cards = [
        {
            **gpu,
            "mig": gpu["index"] in profiles,
            "mig_devices": [
                {"profile": name, "uuid": f"MIG-{n}"} for n, name in enumerate(profiles.get(gpu["index"], []))
            ],
        }
        for gpu in DGX["smi"]["gpus"]
    ]
    return {**DGX, "smi": {**DGX["smi"], "gpus": cards}}


ALL = {index: ["3g.40gb", "3g.40gb"] for index in range(8)}


# --- What is deployed ------------------------------------------------------------------------------------


def test_nvidia_s_plugin_ends_itself_over_a_missing_driver_and_passes_the_device_files() -> None:
    assert values("nvidia", settings()) == {
        "failOnInitError": True,
        "compatWithCPUManager": True,
        "deviceListStrategy": "envvar",
        "migStrategy": "none",
        "runtimeClassName": "nvidia",
    }


def test_every_setting_has_its_place_in_nvidia_s_chart() -> None:
    rendered = values(
        "nvidia",
        settings(
            image_registry="mirror.example/gpu",
            runtime_class="",
            device_list_strategy="cdi-cri",
            pass_device_specs=False,
            driver_root="/run/nvidia/driver",
            mig_strategy="mixed",
            time_slicing=4,
        ),
    )

    config = yaml.safe_load(rendered.pop("config")["map"]["default"])
    assert rendered == {
        "failOnInitError": True,
        "compatWithCPUManager": False,
        "deviceListStrategy": "cdi-cri",
        "migStrategy": "mixed",
        "nvidiaDriverRoot": "/run/nvidia/driver",
        "image": {"repository": "mirror.example/gpu/nvidia/k8s-device-plugin"},
    }
    assert config == {
        "version": "v1",
        "sharing": {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [{"name": GPU, "replicas": 4}]}},
    }


def test_hami_gets_its_node_selector_its_split_and_the_role_s_runtime_class() -> None:
    assert values("hami", settings(image_registry="mirror.example", split_count=4)) == {
        "schedulerName": "hami-scheduler",
        "global": {"imageRegistry": "mirror.example"},
        "devicePlugin": {
            "deviceSplitCount": 4,
            "passDeviceSpecsEnabled": True,
            "deviceListStrategy": "envvar",
            "migStrategy": "none",
            "nvidiaDriverRoot": "/",
            "nvidiaNodeSelector": {"gpu": "on"},
            "createRuntimeClass": False,
            "runtimeClassName": "nvidia",
        },
    }


# --- What a node should offer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "other", "resources"),
    [
        (DGX, {}, {GPU: 8}),
        (DGX, {"time_slicing": 4}, {GPU: 32}),
        (DGX, {"kind": "hami"}, {GPU: 80}),
        (DGX, {"kind": "hami", "split_count": 1}, {GPU: 8}),
        (DGX, {"mig_strategy": "single"}, {GPU: 8}),
        (with_mig(ALL), {"mig_strategy": "single"}, {GPU: 16}),
        (with_mig(ALL), {"mig_strategy": "single", "time_slicing": 2}, {GPU: 32}),
        (
            with_mig({0: ["1g.10gb", "1g.10gb+me"], 1: ["1g.10gb"]}),
            {"mig_strategy": "mixed"},
            {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-1g.10gb.me": 1, GPU: 6},
        ),
        (with_mig(ALL), {"mig_strategy": "mixed"}, {"nvidia.com/mig-3g.40gb": 16}),
    ],
)
def test_cards_mig_time_slices_and_hami_s_split_come_to_one_number(
    facts: dict[str, Any], other: dict[str, Any], resources: dict[str, int]
) -> None:
    assert expected(facts, settings(**other)) == {"resources": resources, "problems": []}


def test_a_card_that_the_driver_has_lost_is_missed_and_not_forgotten() -> None:
    smi = {**DGX["smi"], "gpus": DGX["smi"]["gpus"][:7]}

    assert expected({**DGX, "smi": smi}, settings())["resources"] == {GPU: 8}


@pytest.mark.parametrize(
    ("facts", "strategy", "problem"),
    [
        (with_mig({0: []}), "mixed", "GPU 0 has MIG on and no MIG device"),
        (with_mig({0: ["1g.10gb"]}), "single", "7 GPUs have MIG off and 1 on"),
        (with_mig({**ALL, 3: ["1g.10gb"]}), "single", "the MIG devices are 1g.10gb, 3g.40gb"),
        ({**DGX, "smi": None}, "mixed", "nvidia-smi does not answer"),
        (with_mig({2: ["1g.10gb"]}), "none", "GPU 2 has MIG on, and is offered as a whole card"),
    ],
)
def test_mig_devices_that_the_plugin_would_end_over_are_a_problem(
    facts: dict[str, Any], strategy: str, problem: str
) -> None:
    (found,) = expected(facts, settings(mig_strategy=strategy))["problems"]

    assert found.startswith(problem)


def test_hami_would_hand_out_a_card_with_mig_as_a_whole_one() -> None:
    assert len(expected(with_mig(ALL), settings(kind="hami"))["problems"]) == 8


# --- Labels ----------------------------------------------------------------------------------------------


def test_only_labels_that_the_role_wrote_are_taken_away_again() -> None:
    live = {"nvidia.com/gpu.present": "true", "gpu": "on"}

    assert label_plan({}, live, ["gpu"]) == {"write": {}, "remove": ["gpu"], "clashes": []}
    assert label_plan({"gpu": "on"}, live, ["gpu"]) == {"write": {}, "remove": [], "clashes": []}
    assert label_plan({"gpu": "on"}, {}, []) == {"write": {"gpu": "on"}, "remove": [], "clashes": []}


def test_a_label_that_somebody_else_gave_another_value_is_left_and_named() -> None:
    assert label_plan({"gpu": "on"}, {"gpu": "off"}, []) == {"write": {}, "remove": [], "clashes": ["gpu"]}


def test_a_node_that_the_cluster_does_not_have_is_empty() -> None:
    assert brief([], "gone") == {}


def test_a_program_that_is_not_there_is_the_empty_path() -> None:
    assert (program("no-such-helm"), program("sh")[-3:]) == ("", "/sh")


# --- What is said where it is not so ---------------------------------------------------------------------

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
