"""What the role device_plugin refuses, deploys and reports, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/device_plugin"
DGX = load(REPO / "tests/roles/samples/dgx-h100.yml")
NO_GPU = load(REPO / "tests/roles/samples/no-gpu.yml")
GPU = "nvidia.com/gpu"
NODE = {
    "metadata": {"labels": {"nvidia.com/gpu.present": "true"}},
    "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}},
}

OPERATOR = {
    "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "gpu-operator", "uid": "ds-2"},
    "spec": {
        "template": {
            "spec": {
                "containers": [{"image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"}],
                "volumes": [{"name": "x", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
            }
        }
    },
}
POD = {"metadata": {"name": "x", "ownerReferences": [{"uid": "ds-2"}]}, "spec": {"nodeName": DGX["hostname"]}}


RUNC_ONLY = {"status": "ok", "handlers": ["runc"], "default_handler": "runc"}


def on(expression: str, facts: dict[str, Any] = DGX, **more: Any) -> Any:
    """The value on a node that is labelled, deployed and offers its GPUs, with ``more`` on top."""
    variables = {
        "machine_facts": facts,
        "machine_kubeconfig": "admin.conf",
        "__machine_node": facts["hostname"],
        "device_plugin_helm": "sh",
        "__device_plugin_object": NODE,
        "__device_plugin_node": {"record": {"labels": ["nvidia.com/gpu.present"]}, "sockets": ["nvidia-gpu.sock"]},
        "__device_plugin_classes": {"resources": [{"metadata": {"name": "nvidia"}}]},
        "__device_plugin_sets": {"resources": []},
        "__device_plugin_pods": {"resources": []},
        "__device_plugin_events": {"resources": []},
        **more,
    }
    deployed = evaluate(ROLE, "__device_plugin_values", variables | {"device_plugin_time_slicing": 1})
    chart = {"status": "deployed", "chart": "nvidia-device-plugin-0.20.0", "values": deployed}
    return evaluate(ROLE, expression, {"__device_plugin_helm_info": {"status": chart}} | variables)


def state(**more: Any) -> tuple[str, str]:
    report = on("__device_plugin_report", **more)
    return report["status"], report["why"]


def test_a_node_that_offers_what_it_has_is_as_asked() -> None:
    assert on("__device_plugin_refusals") == []
    assert on("__device_plugin_as_asked") is True
    assert on("__device_plugin_fit") is True
    assert state() == ("ok", "")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"facts": NO_GPU}, "no NVIDIA GPU"),
        ({"device_plugin_kind": "none"}, "device_plugin_kind is none"),
        ({"machine_kubeconfig": ""}, "machine_kubeconfig is empty"),
    ],
)
def test_a_node_that_is_no_concern_of_the_role_is_skipped_and_says_why(other: dict[str, Any], words: str) -> None:
    found, why = state(**other)

    assert found == "skipped"
    assert words in why


def test_a_label_that_the_role_wrote_goes_with_the_gpus() -> None:
    assert on("__device_plugin_label_plan", NO_GPU)["remove"] == ["nvidia.com/gpu.present"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"device_plugin_chart_version": "0.21.0"}, "release nvidia-device-plugin"),
        ({"device_plugin_time_slicing": 4}, "release nvidia-device-plugin"),
        ({"__device_plugin_helm_info": {}}, "release nvidia-device-plugin"),
        ({"__device_plugin_classes": {"resources": []}}, "RuntimeClass nvidia"),
        ({"__device_plugin_object": {**NODE, "metadata": {"labels": {}}}}, "labels of the node"),
    ],
)
def test_what_is_not_deployed_as_asked_is_named(other: dict[str, Any], words: str) -> None:
    assert on("__device_plugin_as_asked", **other) is False
    assert words in on("__device_plugin_deployment_findings[0].what", **other)


def test_gpus_that_need_a_reboot_first_are_waited_for_and_not_failed() -> None:
    none = {**NODE, "status": {"capacity": {}, "allocatable": {}}}
    waiting = {"__device_plugin_object": none, "nvidia_driver_report": {"status": "waiting"}}

    assert state(**waiting) == ("waiting", "The GPUs come once nvidia_driver no longer waits.")
    assert state(__device_plugin_object=none)[0] == "failed"


def test_hami_has_a_chart_a_label_and_a_namespace_of_its_own() -> None:
    assert on(
        "[__device_plugin_chart, __device_plugin_version, __device_plugin_namespace]", device_plugin_kind="hami"
    ) == [
        "hami",
        "2.10.0",
        "kube-system",
    ]
    assert on("__device_plugin_label_plan", device_plugin_kind="hami") == {
        "write": {"gpu": "on"},
        "remove": ["nvidia.com/gpu.present"],
        "clashes": [],
    }


def test_a_chart_by_its_path_is_not_looked_for_in_a_repository() -> None:
    assert on("__device_plugin_repository").startswith("https://")
    assert on("__device_plugin_repository", device_plugin_chart="/charts/plugin.tgz") == ""


def test_values_of_one_s_own_are_laid_over_the_role_s() -> None:
    own = {"tolerations": [{"operator": "Exists"}], "migStrategy": "single"}

    assert on("__device_plugin_values", device_plugin_values=own) == {
        "failOnInitError": True,
        "compatWithCPUManager": True,
        "deviceListStrategy": "envvar",
        "runtimeClassName": "nvidia",
        **own,
    }


def test_what_was_asked_is_the_same_whatever_the_node_has() -> None:
    assert on("__device_plugin_asked") == on("__device_plugin_asked", NO_GPU)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"device_plugin_time_slicing": 0}, "device_plugin_time_slicing is 0"),
        ({"device_plugin_split_count": "0"}, "device_plugin_split_count is 0"),
        ({"device_plugin_kind": "hami", "device_plugin_time_slicing": 2}, "which HAMi does not know"),
        ({"device_plugin_kind": "hami", "device_plugin_mig_strategy": "mixed"}, "HAMi splits cards by itself"),
        ({"device_plugin_runtime_class": "No Class"}, "device_plugin_runtime_class is No Class"),
        ({"device_plugin_driver_root": "run/nvidia"}, "Give the absolute path"),
        ({"container_runtime_report": RUNC_ONLY}, "the node's runtime does not have (it has runc)"),
        (
            {
                "container_runtime_report": {**RUNC_ONLY, "handlers": ["nvidia", "runc"]},
                "device_plugin_runtime_class": "",
            },
            "the node's default runtime is runc: pods would run without the driver",
        ),
        ({"device_plugin_timeout": -1}, "device_plugin_timeout is -1"),
        ({"device_plugin_helm": "no-such-helm"}, "device_plugin_helm is no-such-helm"),
        ({"__device_plugin_object": {}}, "has no node dgx-01"),
        (
            {"__device_plugin_object": {}, "__device_plugin_nodes": {"msg": "503"}},
            "the cluster cannot be read: 503. Give the kubeconfig of a cluster that answers",
        ),
        (
            {"device_plugin_chart_version": "9.9.9", "__device_plugin_shown": {"rc": 1, "stderr": "no chart version"}},
            "chart nvidia-device-plugin 9.9.9 cannot be had: no chart version. Give what can be reached",
        ),
        (
            {"__device_plugin_helm_info": {"status": {"status": "pending-upgrade", "values": {}, "chart": ""}}},
            "is pending-upgrade: a Helm was interrupted",
        ),
        (
            {"__device_plugin_sets": {"resources": [OPERATOR]}, "__device_plugin_all_pods": {"resources": [POD]}},
            "gpu-operator/nvidia-device-plugin-daemonset runs a device plugin for NVIDIA's GPUs on node dgx-01 already",
        ),
        (
            {"__device_plugin_object": {**NODE, "metadata": {"labels": {"nvidia.com/gpu.present": "false"}}}},
            "carries nvidia.com/gpu.present with another value",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: dict[str, Any], sentence: str) -> None:
    (refusal,) = on("__device_plugin_refusals", **arguments)

    assert sentence in refusal


def test_a_cluster_that_stops_answering_is_the_finding_and_not_what_was_not_read() -> None:
    (finding,) = on("__device_plugin_report.findings", __device_plugin_sets={"msg": "503"}, __device_plugin_object={})

    assert finding["what"] == "the cluster cannot be read: 503."


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"__device_plugin_upgraded": {"rc": 1, "stderr": "no space for it"}}, "no space for it"),
        ({"__device_plugin_class_made": {"failed_when_result": False, "msg": "forbidden"}}, "forbidden"),
        (
            {
                "__device_plugin_class_made": {"result": {}, "msg": ""},
                "__device_plugin_upgraded": {"rc": 0, "stderr": "W"},
            },
            "",
        ),
        ({"__device_plugin_class_made": {"skipped": True}, "__device_plugin_upgraded": {"skipped": True}}, ""),
    ],
)
def test_a_failure_of_the_one_deployment_is_told_to_every_node(made: dict[str, Any], words: str) -> None:
    assert on("__device_plugin_deploy_failure", **made) == words


@pytest.mark.parametrize(
    "arguments",
    [
        {"container_runtime_report": {**RUNC_ONLY, "status": "waiting"}},
        {
            "container_runtime_report": {"status": "ok", "handlers": ["nvidia", "runc"], "default_handler": "nvidia"},
            "device_plugin_runtime_class": "",
        },
        {
            "container_runtime_report": RUNC_ONLY,
            "device_plugin_runtime_class": "",
            "device_plugin_device_list_strategy": "cdi-cri",
        },
    ],
    ids=["handlers come with a restart", "nvidia is the default", "CDI needs no handler"],
)
def test_a_runtime_that_fits_or_is_not_known_yet_is_not_refused(arguments: dict[str, Any]) -> None:
    assert on("__device_plugin_refusals", **arguments) == []


def test_a_reset_that_cannot_reach_the_cluster_says_which_labels_stay() -> None:
    assert on("__device_plugin_reset_report.status") == "ok"

    left = on("__device_plugin_reset_report", machine_kubeconfig="")

    assert left["status"] == "waiting"
    assert left["why"].startswith("The Node object keeps nvidia.com/gpu.present: machine_kubeconfig is empty.")


def test_a_node_without_gpus_needs_no_helm() -> None:
    assert on("__device_plugin_refusals", NO_GPU, device_plugin_helm="no-such-helm") == []
