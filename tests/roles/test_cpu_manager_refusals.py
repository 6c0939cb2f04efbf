"""What cpu_manager refuses before a node is drained."""

from __future__ import annotations

from typing import Any

import pytest

from roles.cpu_manager.filter_plugins import cpu_manager
from tests.roles.cpu_manager_node import DGX, K3S, ROLE, asked, kubelet, read, refusals
from tests.roles.templating import evaluate


def test_an_older_k3s_which_reads_no_folder_is_refused() -> None:
    older = K3S | {"kubernetes": K3S["kubernetes"] | {"version": "v1.31.4+k3s1"}}
    found = refusals(older, read(files={}, environment={}))

    assert len(found) == 1
    assert "The kubelet of k3s 1.31.4+k3s1 reads no folder of drop-ins. Upgrade to 1.32" in found[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reserved_per_numa": 0}, "does not start without reserved CPUs"),
        ({"reserved_cpus": "0-4095"}, "are not online here"),
        ({"policy_options": ["align-by-socket"]}, "names align-by-socket, which the kubelet"),
        ({"topology_options": ["max-allowable-numa-nodes"]}, "or the role sets itself"),
        ({"topology_policy": "restricted"}, "cpu_manager_topology_strict_ok to true"),
        ({"topology_policy": "single-numa-node", "topology_strict_ok": True}, "sit on the NUMA nodes 0, 1"),
        ({"memory_policy": "static", "memory_reserved_mib": 99999999}, "less than the node has"),
        ({"memory_policy": "static", "memory_reserved_mib": -1}, "cpu_manager_memory_reserved_mib is -1"),
        ({"timeout": 1}, "Give at least 10"),
    ],
)
def test_arguments_that_cannot_be_followed_are_refused(arguments: dict[str, Any], words: str) -> None:
    found = refusals(**arguments)

    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("version", "arguments", "words"),
    [
        ("v1.32.1", {"policy_options": ["distribute-cpus-across-numa"]}, "distribute-cpus-across-numa (from 1.33 on)"),
        ("v1.31.9", {"oom_kill": "process"}, "has no such choice"),
        ("v1.29.3", {}, "reads no folder of drop-ins"),
    ],
)
def test_what_the_kubelet_is_too_old_for_is_refused(version: str, arguments: dict[str, Any], words: str) -> None:
    found = refusals(kubelet(version), **arguments)

    assert len(found) == 1
    assert words in found[0]


def test_many_numa_nodes_on_an_older_kubelet_are_refused() -> None:
    many = kubelet("v1.30.1") | {"numa": [{"node": node, "cpus": [node], "memory_mib": 1} for node in range(12)]}

    assert "takes at most 8" in " ".join(refusals(many))


def test_killing_the_whole_container_needs_cgroup_v2() -> None:
    assert "needs cgroup v2" in refusals(DGX | {"cgroup_version": 1}, oom_kill="container")[0]


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_drained() -> None:
    assert "/etc/kubernetes cannot be written to" in refusals(live=read(unwritable=["/etc/kubernetes"]))[0]
    assert refusals(live=asked(unwritable=["/etc/kubernetes"])) == []


def asking(config: dict[str, Any] | None = None, *, denied: bool = False, **arguments: Any) -> list[str]:
    """Refusals where the running kubelet was asked for its configuration."""
    answer = {"config": config or {}, "denied": denied, "ready": not denied, "why": "403 Forbidden"}
    found: list[str] = evaluate(
        ROLE,
        "__cpu_manager_refusals",
        {
            "machine_facts": DGX,
            "machine_kubeconfig": "/k",
            "ansible_search_path": [str(ROLE)],
            "__cpu_manager_read": read(),
            "__cpu_manager_live": answer,
            **{f"cpu_manager_{name}": value for name, value in arguments.items()},
        },
    )
    return found


def test_a_right_that_the_proof_needs_is_asked_for_before_the_drain() -> None:
    assert "the right to get nodes/proxy" in asking(denied=True)[0]


def test_reserved_cgroups_with_which_the_kubelet_would_not_start_are_refused() -> None:
    assert "takes no reserved CPUs by number" in asking({"systemReservedCgroup": "/system"})[0]
    assert asking({"systemReservedCgroup": ""}) == []


def test_memory_reserved_by_a_share_has_to_be_given_as_a_number() -> None:
    share = {"evictionHard": {"memory.available": "5%"}}

    assert "or a share of it" in asking(share, memory_policy="static")[0]
    assert asking(share, memory_policy="static", memory_reserved_mib=4096) == []


def test_a_kubelet_that_does_not_tell_its_health_is_refused() -> None:
    assert "healthzPort is 0" in refusals(live=read(health_url=""))[0]


def test_options_on_the_kubelet_s_command_line_that_would_win_are_refused() -> None:
    live = read(options={"cpu-manager-policy": "none", "v": "2"})

    assert "gets --cpu-manager-policy on its command line" in refusals(live=live)[0]
    assert refusals(live=live, policy="none") == []


def test_a_unit_that_is_not_kubeadm_s_is_refused_unless_it_names_a_folder_itself() -> None:
    assert "with --config-dir=" in refusals(live=read(environment={}))[0]
    assert refusals(live=read(environment={}, has_folder_option=True)) == []


NVIDIA, HAMI = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "docker.io/projecthami/hami:v2.10.0"


def plugin(image: str, environment: dict[str, str] | None = None, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """A DaemonSet with one container."""
    env = [{"name": name, "value": value} for name, value in (environment or {}).items()]
    container = {"image": image, "args": list(args), "env": env}
    return {
        "metadata": {"namespace": "gpu", "name": "plugin"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


@pytest.mark.parametrize(
    ("daemon_set", "refused"),
    [
        (plugin(NVIDIA), True),
        (plugin(NVIDIA, {"PASS_DEVICE_SPECS": "false"}), True),
        (plugin(NVIDIA, {"PASS_DEVICE_SPECS": "true"}), False),
        (plugin(NVIDIA, args=("--pass-device-specs",)), False),
        (plugin(NVIDIA, {"DEVICE_LIST_STRATEGY": "cdi-cri"}), False),
        (plugin(HAMI, {"PASS_DEVICE_SPECS": "false"}), True),
        (plugin(HAMI, {"PASS_DEVICE_SPECS": "true"}, ("--pass-device-specs=false",)), True),
        (plugin(HAMI, {"PASS_DEVICE_SPECS": "true"}), False),
        (plugin("registry.k8s.io/kube-proxy:v1.37.2"), False),
    ],
)
def test_a_device_plugin_that_would_lose_the_gpus_is_refused(daemon_set: dict[str, Any], refused: bool) -> None:
    """Known failure B 4."""
    assert cpu_manager.without_device_specs([daemon_set]) == (["gpu/plugin"] if refused else [])
