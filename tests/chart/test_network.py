"""What pods and NCCL are told about their networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from tests.chart.rendering import environment, minimal, only, pod_spec, render, run_config, trainer

RDMA = {"name": "rdma/hca", "count": 2}


def told(changes: dict[str, Any]) -> dict[str, str]:
    """The variables of NCCL and gloo."""
    found = environment(render(minimal(changes)))
    return {name: value for name, value in found.items() if name.startswith(("NCCL_", "GLOO_"))}


FABRICS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"preset": "auto"}, {}),
    ({"preset": "ethernet"}, {"NCCL_NET": "Socket"}),
    ({"preset": "nvlink-only"}, {"NCCL_NET": "Socket", "NCCL_P2P_LEVEL": "NVL"}),
    ({"preset": "infiniband"}, {}),
    ({"preset": "infiniband", "devices": ["mlx5_1", "mlx5_10:1"]}, {"NCCL_IB_HCA": "=mlx5_1,mlx5_10:1"}),
    ({"preset": "roce", "trafficClass": 0}, {"NCCL_IB_TC": "0"}),
    ({"preset": "infiniband", "required": True, "resource": RDMA}, {"NCCL_NET": "IB"}),
    ({"preset": "roce", "required": True, "resource": RDMA}, {"NCCL_NET": "IB"}),
]


@pytest.mark.parametrize(("fabric", "variables"), FABRICS, ids=lambda case: str(case)[:50])
def test_nccl_is_told_what_it_cannot_find_out_and_nothing_else(
    fabric: dict[str, Any], variables: dict[str, str]
) -> None:
    """Known failure A19: with NCCL_NET it takes the network of that name or fails, it does not go over TCP."""
    assert told({"network.fabric": fabric}) == variables


def test_with_ipv6_service_nccl_and_roce_take_that_family() -> None:
    """Known failure A20."""
    changes = {"network": {"ipFamily": "IPv6", "fabric": {"preset": "roce"}}}
    assert told(changes) == {"NCCL_SOCKET_FAMILY": "AF_INET6", "NCCL_IB_ADDR_FAMILY": "AF_INET6"}
    service = only(render(minimal(changes)), "Service")["spec"]
    assert (service["ipFamilyPolicy"], service["ipFamilies"]) == ("SingleStack", ["IPv6"])
    assert told({"network.ipFamily": "IPv4"}) == {"NCCL_SOCKET_FAMILY": "AF_INET"}
    assert "ipFamilies" not in only(render(minimal({})), "Service")["spec"]


def test_several_interfaces_are_taken_by_their_whole_names() -> None:
    """Known failure A18: NCCL reads a bare name as the beginning of one."""
    found = told({"network.interface": "eth1,eth2"})
    assert found == {"NCCL_SOCKET_IFNAME": "=eth1,eth2", "GLOO_SOCKET_IFNAME": "eth1,eth2"}


def test_the_node_s_profile_is_mounted_where_the_launcher_looks() -> None:
    network = {"hostNetwork": True, "fromNodeProfile": True}
    manifests = render(minimal({"network": network, "scheduling.nodeProfile": "required"}))
    (mount,) = (found for found in trainer(manifests)["volumeMounts"] if found["name"] == "node-profile")
    (volume,) = (found for found in pod_spec(manifests)["volumes"] if found["name"] == "node-profile")
    assert (mount["mountPath"], mount["readOnly"]) == (contract.NODE_PROFILE_FILE, True)
    assert volume["hostPath"] == {"path": contract.NODE_PROFILE_FILE, "type": "File"}
    assert "node-profile" not in str(pod_spec(render(minimal({})))["volumes"])


@pytest.mark.parametrize("preset", ["auto", "ethernet", "nvlink-only"])
def test_the_launcher_is_told_of_rdma_only(preset: str, tmp_path: Path) -> None:
    fabric = {"preset": "roce", "required": True, "devices": ["mlx5_0"], "resource": RDMA}
    told_of = run_config(render(minimal({"network.fabric": fabric})), tmp_path).launch.fabric
    assert (told_of.preset, told_of.required, told_of.devices) == ("roce", True, ("mlx5_0",))
    manifests = render(minimal({"network.fabric.preset": preset}))
    assert "fabric" not in only(manifests, "ConfigMap")["data"]["train.yaml"]


def test_rdma_takes_no_capability_since_only_root_could_use_it() -> None:
    """Known failure A19. What a pod would get of it is looked up on a real node, in tests/lab/test_security.py."""
    fabric = {"preset": "infiniband", "resource": RDMA}
    context = trainer(render(minimal({"network.fabric": fabric})))["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False


def metadata(changes: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of the pods."""
    found = only(render(minimal(changes)), "StatefulSet")["spec"]["template"]["metadata"]
    return found["labels"], found.get("annotations", {})


def test_service_meshes_are_kept_out_unless_the_values_want_them() -> None:
    """Known failure A20: a sidecar breaks the connections of the store."""
    labels, annotations = metadata({})
    assert labels["sidecar.istio.io/inject"] == "false"
    assert labels["istio.io/dataplane-mode"] == "none"
    assert annotations == {"linkerd.io/inject": "disabled"}
    labels, annotations = metadata({"network.meshOptOut": False})
    assert not [label for label in labels if "istio" in label]
    assert annotations == {}


def test_labels_and_annotations_of_the_user_go_before_those_for_meshes() -> None:
    labels, annotations = metadata(
        {"podLabels": {"sidecar.istio.io/inject": "true"}, "podAnnotations": {"linkerd.io/inject": "enabled"}}
    )
    assert labels["sidecar.istio.io/inject"] == "true"
    assert annotations == {"linkerd.io/inject": "enabled"}


def test_further_networks_are_asked_of_multus_beside_the_users_own_annotations() -> None:
    networks = ["rail-0", "fabric/rail-1", "fabric/rail-2@net3"]
    _, annotations = metadata({"network.secondary": networks, "podAnnotations": {"example.com/a": "b"}})
    assert annotations["k8s.v1.cni.cncf.io/networks"] == "rail-0,fabric/rail-1,fabric/rail-2@net3"
    assert annotations["example.com/a"] == "b"


def test_secrets_are_referred_to_and_never_rendered() -> None:
    manifests = render(minimal({"secretEnv": {"HF_TOKEN": {"secret": "hub", "key": "token"}}}))
    (entry,) = (entry for entry in trainer(manifests)["env"] if entry["name"] == "HF_TOKEN")
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_on_the_pods_network_everything_that_restricted_asks_for_is_there() -> None:
    """The real admission says so in tests/lab/test_security.py."""
    manifests = render(minimal({}))
    pod = pod_spec(manifests)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]["type"]) == (
        True,
        "RuntimeDefault",
    )
    assert trainer(manifests)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
