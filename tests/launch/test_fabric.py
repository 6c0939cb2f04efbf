"""A pod that cannot use the fabric says so before its ranks start (known failure A19)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.config import FabricConfig, LaunchConfig, RunConfig
from rankzero.errors import PreflightError
from rankzero.launch import fabric, node_profile, preflight
from tests.launch.pods import REPO, SCRIPT
from tests.launch.test_pod import identity

INFINIBAND = FabricConfig(preset="infiniband")
UNLIMITED = "CapEff:\t0000000000004000\n"


def machine(root: Path, **devices: str) -> Path:
    """A tree with /sys, /dev and /proc as of a pod with these devices: ``mlx5_0="InfiniBand 4: ACTIVE"``."""
    for index, (device, port) in enumerate(devices.items()):
        link_layer, _, state = port.partition(" ")
        files = {
            f"sys/class/infiniband/{device}/ports/1/link_layer": f"{link_layer}\n",
            f"sys/class/infiniband/{device}/ports/1/state": f"{state}\n",
            f"sys/class/infiniband_verbs/uverbs{index}/ibdev": f"{device}\n",
            f"dev/infiniband/uverbs{index}": "",
        }
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/status").write_text(UNLIMITED)
    return root


def test_a_pod_with_an_active_port_of_the_right_kind_is_content(tmp_path: Path) -> None:
    root = machine(tmp_path, mlx5_0="InfiniBand 4: ACTIVE", mlx5_1="Ethernet 1: DOWN")
    assert fabric.problems(INFINIBAND, root) == []
    assert fabric.problems(FabricConfig(preset="infiniband", devices=("mlx5_0:1",)), root) == []


def test_nothing_is_asked_of_a_pod_whose_values_promise_nothing(tmp_path: Path) -> None:
    assert fabric.problems(FabricConfig(), tmp_path) == []


def test_a_pod_without_a_device_is_told_where_it_comes_from(tmp_path: Path) -> None:
    (problem,) = fabric.problems(INFINIBAND, machine(tmp_path))
    assert "set network.fabric.resource.name" in problem


def test_a_device_that_only_the_node_may_open_does_not_count(tmp_path: Path) -> None:
    """/sys shows all devices of the node; the container gets those that the device plugin hands out."""
    root = machine(tmp_path, mlx5_0="InfiniBand 4: ACTIVE", mlx5_1="InfiniBand 4: ACTIVE")
    (root / "dev/infiniband/uverbs1").unlink()
    (problem,) = fabric.problems(FabricConfig(preset="infiniband", devices=("mlx5_0", "mlx5_1")), root)
    assert problem == "network.fabric.devices names mlx5_1, which this pod does not have: it has mlx5_0"


def test_a_port_of_another_kind_is_named(tmp_path: Path) -> None:
    root = machine(tmp_path, mlx5_0="Ethernet 4: ACTIVE")
    (problem,) = fabric.problems(INFINIBAND, root)
    assert "no RDMA port here is of that kind: mlx5_0:1 Ethernet ACTIVE" in problem
    assert fabric.problems(FabricConfig(preset="roce"), root) == []


def test_a_port_that_is_down_is_named(tmp_path: Path) -> None:
    (problem,) = fabric.problems(INFINIBAND, machine(tmp_path, mlx5_0="InfiniBand 2: INIT"))
    assert "no port of the fabric is active: mlx5_0:1 InfiniBand INIT" in problem


@pytest.mark.parametrize(
    ("least", "capability", "content"),
    [(fabric.LEAST_LOCKED, 0, False), (8 * 2**20, 0, True), (fabric.LEAST_LOCKED, 1 << fabric.CAP_IPC_LOCK, True)],
)
def test_the_limit_on_locked_memory_is_the_one_that_the_kernel_holds_the_ranks_to(
    tmp_path: Path, least: int, capability: int, content: bool
) -> None:
    """systemd gives a container runtime 8 MiB, and every pod inherits them."""
    root = machine(tmp_path, mlx5_0="InfiniBand 4: ACTIVE")
    (root / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{capability:016x}\n")
    program = (
        "import resource, sys; from pathlib import Path; from rankzero.config import FabricConfig\n"
        "from rankzero.launch import fabric\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 * 2**20,) * 2)\n"
        "fabric.LEAST_LOCKED = int(sys.argv[2])\n"
        "print(*fabric.problems(FabricConfig(preset='infiniband'), Path(sys.argv[1])), sep='\\n')"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(root), str(least)],
        env={"PYTHONPATH": str(REPO / "trainer")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ("may lock 8192 KiB" in said) is not content, said


def run_config(**fabric_settings: object) -> RunConfig:
    promised = FabricConfig(preset="infiniband", **fabric_settings)  # type: ignore[arg-type]
    return RunConfig(launch=LaunchConfig(script=str(SCRIPT), fabric=promised))


def test_a_fabric_that_is_required_and_missing_ends_the_pod_and_else_is_a_warning(tmp_path: Path) -> None:
    """On this machine, which has no RDMA device."""
    with pytest.raises(PreflightError, match="cannot use the fabric: this pod can open no RDMA device"):
        preflight.check(run_config(required=True), identity(tmp_path))
    first, *_ = preflight.check(run_config(), identity(tmp_path))
    assert first.startswith("NCCL will not use the fabric: this pod can open no RDMA device")


@pytest.mark.parametrize(("has_profile", "who"), [(True, "this node's profile"), (False, "network.interface")])
def test_an_interface_that_the_pod_does_not_have_is_refused_with_those_that_it_has_and_who_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_profile: bool, who: str
) -> None:
    """Known failure A18: NCCL and gloo find out when all ranks have started."""
    config = RunConfig(launch=LaunchConfig(script=str(SCRIPT)))
    monkeypatch.setattr(contract, "NODE_PROFILE_FILE", str(SCRIPT if has_profile else tmp_path / "none"))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    preflight.check(config, identity(tmp_path))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,eth77")
    with pytest.raises(PreflightError, match=f"^{who} names eth77, which this pod does not have: it has lo"):
        preflight.check(config, identity(tmp_path))


def test_the_node_s_profile_says_which_interfaces_and_devices_to_take(tmp_path: Path) -> None:
    """As the role node_profile writes it; without the mount nothing is said."""
    path = tmp_path / "profile.json"
    assert node_profile.variables(path) == {}
    path.write_text(json.dumps({"profile": "training", "interfaces": ["bond0"], "hcas": ["mlx5_0", "mlx5_3"]}))
    assert node_profile.variables(path) == {
        "NCCL_SOCKET_IFNAME": "=bond0",
        "GLOO_SOCKET_IFNAME": "bond0",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_3",
    }
    path.write_text(json.dumps({"interfaces": [], "hcas": []}))
    assert node_profile.variables(path) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"interfaces": 1, "hcas": []}'])
def test_a_file_that_is_no_profile_ends_the_pod(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(PreflightError, match="is not the profile of this node"):
        node_profile.variables(path)
