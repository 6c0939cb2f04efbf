"""The chart's side of ``rankzero/contract.py``: what Helm renders carries exactly these names."""

from __future__ import annotations

import pytest

from rankzero import contract
from rankzero.launch.identity import from_environment
from tests.chart.rendering import Manifest, environment, minimal, only, pod_spec, render, trainer


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    """A release of two nodes."""
    return render(minimal({"nodes": 2, "run.id": "second"}))


def test_the_trainers_environment_is_the_closed_list(manifests: list[Manifest]) -> None:
    assert sorted(environment(manifests)) == sorted(contract.CHART_ENV)


def test_the_environment_says_who_the_pod_is(manifests: list[Manifest]) -> None:
    assert environment(manifests) == {
        contract.ENV_CONFIG: contract.CONFIG_PATH,
        contract.ENV_CONFIG_HASH: only(manifests, "ConfigMap")["metadata"]["name"].removeprefix("mnist-"),
        contract.ENV_RUN_NAME: "mnist",
        contract.ENV_RUN_ID: "second",
        contract.ENV_WORKLOAD: "StatefulSet/mnist",
        contract.ENV_RANK0_HOST: "mnist-0.mnist",
        contract.ENV_STATE_ROOT: contract.STATE_ROOT,
        contract.ENV_GRACE_SECONDS: "60",
        contract.ENV_FIRST_NODE_RANK: "0",
        contract.ENV_NODE_RANK: "metadata.labels['apps.kubernetes.io/pod-index']",
        contract.ENV_NAMESPACE: "metadata.namespace",
        contract.ENV_POD_NAME: "metadata.name",
        contract.ENV_POD_UID: "metadata.uid",
        contract.ENV_POD_IP: "status.podIP",
        contract.ENV_NODE_NAME: "spec.nodeName",
    }


def test_the_launcher_finds_its_state_where_the_notes_say(manifests: list[Manifest]) -> None:
    environ = {**environment(manifests), contract.ENV_NODE_RANK: "1"}
    identity = from_environment(environ, nodes=2)
    assert str(identity.state_dir) == f"{contract.STATE_ROOT}/mnist/second"
    assert identity.rank0_host == "mnist-0.mnist"


def test_the_launcher_knows_when_the_kubelet_kills_the_pod() -> None:
    """Known failure A24: a save that takes longer than this never ends, whatever the other limits are."""
    manifests = render(minimal({"terminationGracePeriodSeconds": 90}))
    assert pod_spec(manifests)["terminationGracePeriodSeconds"] == 90
    environ = {**environment(manifests), contract.ENV_NODE_RANK: "0"}
    assert from_environment(environ, nodes=1).grace_seconds == 90


def test_settings_and_checkpoints_are_mounted_where_the_launcher_looks(manifests: list[Manifest]) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in trainer(manifests)["volumeMounts"]}
    (key,) = only(manifests, "ConfigMap")["data"]
    assert f"{mounts['config']}/{key}" == contract.CONFIG_PATH
    assert mounts["checkpoints"] == contract.STATE_ROOT
    assert trainer(manifests).get("terminationMessagePath", "/dev/termination-log") == contract.TERMINATION_LOG


def test_the_ports_are_the_launchers(manifests: list[Manifest]) -> None:
    ports = {port["name"]: port["containerPort"] for port in trainer(manifests)["ports"]}
    assert ports == {
        contract.RENDEZVOUS_PORT_NAME: contract.RENDEZVOUS_PORT,
        contract.STATUS_PORT_NAME: contract.STATUS_PORT,
    }
    (port,) = only(manifests, "Service")["spec"]["ports"]
    assert (port["name"], port["port"]) == (contract.RENDEZVOUS_PORT_NAME, contract.RENDEZVOUS_PORT)


def test_container_labels_and_resources_carry_the_shared_names(manifests: list[Manifest]) -> None:
    assert trainer(manifests)["name"] == contract.CONTAINER_NAME
    assert trainer(manifests)["command"] == ["rankzero", "launch"]
    selector = only(manifests, "StatefulSet")["spec"]["selector"]["matchLabels"]
    assert selector == {contract.LABEL_NAME: contract.APP_NAME, contract.LABEL_INSTANCE: "mnist"}
    assert trainer(manifests)["resources"]["limits"] == {contract.GPU_RESOURCE: 1}
    (rule,) = pod_spec(manifests)["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert rule["preference"]["matchExpressions"] == [{"key": contract.LABEL_NODE_PROFILE, "operator": "Exists"}]
