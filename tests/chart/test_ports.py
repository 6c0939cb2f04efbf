"""Ports follow one source; on the network of the nodes each release has its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rankzero import contract
from scripts.generate import helm
from tests.chart.rendering import Manifest, minimal, only, pod_spec, render, run_config, trainer

HOST: dict[str, object] = {"nodes": 2, "network.hostNetwork": True}
NODE_PORTS = range(30000, 32768)


def ports_of(manifests: list[Manifest], folder: Path) -> tuple[int, int]:
    """Rendezvous and status port, after a comparison of all who must agree on them."""
    container = trainer(manifests)
    by_name = {port["name"]: port["containerPort"] for port in container["ports"]}
    launch = run_config(manifests, folder).launch
    assert by_name == {
        contract.RENDEZVOUS_PORT_NAME: launch.rendezvous_port,
        contract.STATUS_PORT_NAME: launch.status_port,
    }
    (served,) = only(manifests, "Service")["spec"]["ports"]
    assert served["port"] == launch.rendezvous_port
    probes = [probe for name, probe in container.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["port"] for probe in probes} == {contract.STATUS_PORT_NAME}
    return launch.rendezvous_port, launch.status_port


def test_in_the_network_of_the_pods_nothing_changes(tmp_path: Path) -> None:
    manifests = render(minimal({"nodes": 2}))
    assert not {"hostNetwork", "dnsPolicy"} & pod_spec(manifests).keys()
    assert not [port for port in trainer(manifests)["ports"] if "hostPort" in port]
    assert "Port" not in only(manifests, "ConfigMap")["data"]["train.yaml"]
    assert ports_of(manifests, tmp_path) == (contract.RENDEZVOUS_PORT, contract.STATUS_PORT)


@pytest.mark.parametrize("network", [{}, HOST], ids=["pods", "nodes"])
def test_ports_that_the_values_name_go_first(network: dict[str, object], tmp_path: Path) -> None:
    both = {"launch.rendezvousPort": 11000, "launch.statusPort": 11001}
    assert ports_of(render(minimal({**network, **both})), tmp_path) == (11000, 11001)
    rendezvous, status = ports_of(render(minimal({**network, "launch.statusPort": 11001})), tmp_path)
    assert (rendezvous != 11001, status) == (True, 11001)


def test_on_the_network_of_the_nodes_the_pods_resolve_the_service_and_claim_their_ports() -> None:
    """By its hostPort the scheduler keeps two pods with the same port apart."""
    manifests = render(minimal(HOST))
    spec = pod_spec(manifests)
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert all(port["hostPort"] == port["containerPort"] for port in trainer(manifests)["ports"])


@pytest.mark.parametrize("release", ["a", "mnist", "mnist-2", "resnet50"])
@pytest.mark.parametrize("namespace", ["research", "team-a"])
def test_the_ports_of_a_release_follow_from_its_name_and_lie_where_nobody_else_takes_them(
    release: str, namespace: str, tmp_path: Path
) -> None:
    """Known failure A17: two releases on one node, node ports, ephemeral ports, ports that launchers choose."""
    manifests = render(minimal(HOST), release=release, extra=["--namespace", namespace])
    digits = [digit for digit in hashlib.sha256(f"{namespace}/{release}".encode()).hexdigest() if digit.isdecimal()]
    rendezvous = 12000 + int("1" + "".join(digits[:9])) % 4000
    assert ports_of(manifests, tmp_path) == (rendezvous, rendezvous + 4000)


def test_no_derived_port_can_be_one_that_a_launcher_chooses_or_kubernetes_hands_out() -> None:
    derived = range(12000, 20000)
    assert derived.stop <= contract.FIRST_STORE_PORT < contract.LAST_STORE_PORT < NODE_PORTS.start


def test_releases_of_one_name_in_two_namespaces_have_ports_of_their_own(tmp_path: Path) -> None:
    here = ports_of(render(minimal(HOST), extra=["--namespace", helm.NAMESPACE]), tmp_path)
    there = ports_of(render(minimal(HOST), extra=["--namespace", "other"]), tmp_path)
    assert not set(here) & set(there)
