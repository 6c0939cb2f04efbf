"""What the nodes are made from, and when that counts as changed."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
import yaml

from rankzero.errors import ConfigError
from scripts.lab import images, kubeadm, nodes, settings, storage


def test_every_node_has_a_route_to_the_pods_of_each_other_node() -> None:
    for node in settings.NODES:
        routes = nodes.files(node)["network/routes"].splitlines()
        others = [other for other in settings.NODES if other != node]
        assert routes == [f"route replace {other.pods} via {other.address}" for other in others]


def test_addresses_of_nodes_pods_and_services_do_not_overlap() -> None:
    networks = [ipaddress.ip_network(text) for text in (settings.NETWORK, settings.PODS, settings.SERVICES)]
    assert not any(one.overlaps(other) for one in networks for other in networks if one is not other)
    assert all(ipaddress.ip_address(node.address) in networks[0] for node in settings.NODES)
    shares = [ipaddress.ip_network(node.pods) for node in settings.NODES]
    assert len(set(shares)) == len(settings.NODES)
    assert all(share.subnet_of(networks[1]) for share in shares)  # type: ignore[arg-type]


def test_the_pod_network_is_what_the_bridge_plugin_hands_out() -> None:
    for node in settings.NODES:
        bridge = json.loads(nodes.files(node)["cni/10-bridge.conflist"])["plugins"][0]
        assert bridge["ipam"]["ranges"] == [[{"subnet": node.pods}]]


def test_a_changed_setting_of_kubeadm_makes_other_nodes_and_the_same_does_not() -> None:
    assert nodes.spec_hash("a") == nodes.spec_hash("a")
    assert nodes.spec_hash("a") != nodes.spec_hash("b")


def test_neither_another_registry_port_nor_another_cache_folder_makes_other_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = nodes.spec_hash(kubeadm.init_config())
    monkeypatch.setenv("RANKZERO_REGISTRY_PORT", "5999")
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    assert nodes.spec_hash(kubeadm.init_config()) == spec


@pytest.mark.parametrize("part", ["node_image", "run_arguments", "files"])
def test_a_change_of_the_recipe_makes_other_nodes(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    before = nodes.spec_hash("")
    changed: dict[str, object] = {
        "node_image": lambda: "localhost/other:1",
        "run_arguments": lambda _: ["--privileged"],
        "files": lambda _: {"network/routes": ""},
    }
    monkeypatch.setattr(nodes, part, changed[part])
    assert nodes.spec_hash("") != before


def test_running_nodes_learn_another_port_of_the_registry_and_keep_the_earlier_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    for port in ("5001", "5999"):
        monkeypatch.setenv("RANKZERO_REGISTRY_PORT", port)
        nodes.write_registry_files()
    for node in settings.NODES:
        folder = tmp_path / "lab" / "nodes" / node.name / "certs.d"
        names = {"localhost:5001", "localhost:5999", images.MIRROR}
        assert {path.name for path in folder.iterdir()} == names


@pytest.mark.parametrize("port", ["80", "0", "65536", "http", "-1", "5001.5"])
def test_a_port_that_cannot_be_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("RANKZERO_REGISTRY_PORT", port)
    with pytest.raises(ConfigError, match="RANKZERO_REGISTRY_PORT") as refusal:
        settings.registry_port()
    assert port in refusal.value.message


def test_kubeadm_is_told_the_gates_of_gang_scheduling_for_all_three_components() -> None:
    documents = {one["kind"]: one for one in yaml.safe_load_all(kubeadm.init_config())}
    cluster = documents["ClusterConfiguration"]
    gate = {"name": "feature-gates", "value": "GenericWorkload=true"}
    for component in ("apiServer", "controllerManager", "scheduler"):
        assert gate in cluster[component]["extraArgs"]
    assert documents["KubeProxyConfiguration"]["clusterCIDR"] == settings.PODS


def test_the_storage_class_is_the_default_one_and_its_scripts_are_valid_shell_variables() -> None:
    documents = list(yaml.safe_load_all(storage.manifest()))
    (storage_class,) = (one for one in documents if one["kind"] == "StorageClass")
    assert storage_class["metadata"]["name"] == settings.STORAGE_CLASS
    (config,) = (one for one in documents if one["kind"] == "ConfigMap")
    assert json.loads(config["data"]["config.json"]) == {"sharedFileSystemPath": settings.SHARED_PATH}
    assert 'mkdir -m 0777 -p "$VOL_DIR"' in config["data"]["setup"]
