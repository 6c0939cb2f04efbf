"""What host_tuning's variables come to on a node, and which arguments it refuses, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from tests.roles.templating import evaluate

ROLE = REPO / "roles/host_tuning"
KERNEL = {
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    "net/core/somaxconn": "4096",
    "net/ipv4/tcp_max_syn_backlog": "4096",
    "net/ipv4/tcp_timestamps": "1",
    "fs/file-max": "9223372036854775807",
    "fs/inotify/max_user_instances": "128",
    "fs/inotify/max_user_watches": "1048576",
    "fs/nr_open": "1048576",
}
UNIT = "Id={}.service\nLoadState={}\nMainPID=0\nNeedDaemonReload=no\nLimitNOFILE=524288\nLimitMEMLOCK=8388608\n"
CAPABLE, NOT_CAPABLE = "000001ffffffffff", "000001fffeffffff"


def node(
    speed: int = 100_000, capabilities: str = CAPABLE, services: tuple[str, ...] = ("containerd", "kubelet")
) -> Any:
    """What the role reads from a node: its facts and the registered results of tasks/read_*.yml."""
    process_1 = {
        "limits": "Max open files            20000   20000   files\nMax locked memory   8388608  8388608 bytes",
        "status": f"CapEff:\t{capabilities}",
        "uid_map": "0 0 4294967295",
    }
    lines = [f"/proc/sys/{key}:{value}" for key, value in KERNEL.items()]
    lines += [f"/proc/1/{file}:{line}" for file, text in process_1.items() for line in text.splitlines()]
    known = ("containerd", "kubelet", "k3s-agent")
    return {
        "ansible_facts": {
            "nodename": "GPU-01",
            "interfaces": ["lo", "eth0"],
            "default_ipv4": {"interface": "eth0"},
            "eth0": {"speed": speed},
        },
        "__host_tuning_record_read": {"skipped": True},
        "__host_tuning_kernel": {"stdout": "\n".join(lines)},
        "__host_tuning_units_shown": {
            "stdout": "\n".join(UNIT.format(name, "loaded" if name in services else "not-found") for name in known)
        },
        "__host_tuning_processes": {"stdout": ""},
    }


def on(expression: str, described: dict[str, Any], **arguments: Any) -> Any:
    return evaluate(ROLE, expression, described | {f"host_tuning_{name}": value for name, value in arguments.items()})


def refusals(described: dict[str, Any], **arguments: Any) -> list[str]:
    found: list[str] = on("__host_tuning_refusals", described, **arguments)
    return found


def wanted(described: dict[str, Any], **arguments: Any) -> dict[str, str]:
    plan = on("__host_tuning_sysctl_plan", described, **arguments)
    return {item["key"]: item["wanted"] for item in plan}


def test_the_defaults_are_fit_for_a_machine() -> None:
    assert refusals(node()) == []


def test_buffers_follow_the_speed_that_the_interface_tells() -> None:
    assert wanted(node(speed=400_000))["net.ipv4.tcp_wmem"] == "4096 16384 20000000"


@pytest.mark.parametrize("speed", [-1, 0])
def test_an_interface_that_does_not_tell_its_speed_gets_the_floor(speed: int) -> None:
    assert wanted(node(speed=speed))["net.ipv4.tcp_wmem"] == "4096 16384 6291456"


def test_a_given_speed_wins_over_the_interface_s_also_as_text_from_the_command_line() -> None:
    assert wanted(node(speed=1000), link_mbit="400000", rtt_ms="0.2")["net.ipv4.tcp_rmem"] == "4096 131072 20000000"


def test_kernel_values_are_only_ever_raised() -> None:
    plan = wanted(node())

    assert plan["fs.file-max"] == "9223372036854775807"
    assert plan["fs.inotify.max_user_watches"] == "1048576"
    assert plan["fs.inotify.max_user_instances"] == "8192"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"somaxconn": 128}, "host_tuning_somaxconn is 128"),
        ({"tcp_buffer_floor": 4194304}, "host_tuning_tcp_buffer_floor is 4194304"),
        ({"tcp_buffer_cap": 1048576}, "host_tuning_tcp_buffer_cap is 1048576"),
        ({"rtt_ms": 0}, "host_tuning_rtt_ms is 0"),
        ({"link_mbit": -1}, "host_tuning_link_mbit is -1"),
        ({"interface": "bond0"}, "host_tuning_interface is bond0, which this node does not have. It has eth0, lo"),
        (
            {"limit_nofile": "infinity"},
            "host_tuning_limit_nofile is infinity, more than this node's fs.nr_open (1048576)",
        ),
        ({"limit_nofile": 2097152}, "host_tuning_limit_nofile is 2097152, more than this node's fs.nr_open (1048576)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_harms_is_refused_in_one_sentence(arguments: dict[str, Any], words: str) -> None:
    (sentence,) = refusals(node(), **arguments)

    assert words in sentence


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("net.ipv4.tcp_timestamps", "0", "net.ipv4.tcp_timestamps=0"),
        ("fs.file-max", "65536", "which the role manages and only ever raises"),
        ("net.core.rmem_default", "134217728", "memory for every socket"),
    ],
)
def test_an_extra_sysctl_that_harms_is_refused(key: str, value: str, words: str) -> None:
    extra = {"key": key, "value": value, "reason": "a blog said so", "reach": "host"}

    (sentence,) = refusals(node(), extra_sysctls=[extra])

    assert words in sentence


def test_an_extra_sysctl_given_twice_is_refused() -> None:
    extra = {"key": "net.ipv4.tcp_timestamps", "value": "1", "reason": "as it is", "reach": "host"}

    (sentence,) = refusals(node(), extra_sysctls=[extra, extra])

    assert "names a key twice" in sentence


def test_all_broken_rules_are_told_together() -> None:
    assert len(refusals(node(), somaxconn=1, rtt_ms=-1)) == 2


def test_a_node_without_any_service_to_limit_is_refused() -> None:
    (sentence,) = refusals(node(services=()))

    assert "Install Kubernetes first" in sentence


def test_the_services_of_k3s_are_found_as_those_of_kubeadm_are() -> None:
    assert on("__host_tuning_services", node(services=("k3s-agent",))) == ["k3s-agent"]
    assert on("__host_tuning_services", node()) == ["containerd", "kubelet"]


def test_limits_that_a_container_cannot_grant_are_refused_with_what_it_can() -> None:
    nofile, memlock = refusals(node(capabilities=NOT_CAPABLE))

    assert "may grant at most 20000" in nofile
    assert "may grant at most 8388608 bytes" in memlock


def test_limits_that_a_container_cannot_grant_are_lowered_where_that_is_asked_for() -> None:
    container = node(capabilities=NOT_CAPABLE)

    assert refusals(container, limit_beyond_host="lower") == []
    assert on("__host_tuning_limits", container, limit_beyond_host="lower") == {"nofile": 20000, "memlock": 8388608}


def test_lowering_leaves_limits_alone_that_the_node_grants() -> None:
    asked = on("__host_tuning_asked_limits", node())

    assert on("__host_tuning_limits", node(), limit_beyond_host="lower") == asked


def test_the_profile_s_hash_has_12_digits_and_changes_with_an_argument_only() -> None:
    same, other = on("__host_tuning_profile_hash", node()), on("__host_tuning_profile_hash", node(), somaxconn=8192)

    assert len(same) == 12
    assert int(same, 16) >= 0
    assert same == on("__host_tuning_profile_hash", node())
    assert same != other


def test_the_node_s_name_is_its_host_name_in_lower_case_unless_given() -> None:
    assert on("__host_tuning_kubernetes_node", node()) == "gpu-01"
    assert on("__host_tuning_kubernetes_node", node(), node_name="worker-7") == "worker-7"
