"""What host_tuning's variables come to on a node, and which arguments it refuses, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from tests.roles.templating import evaluate

ROLE = REPO / "roles/host_tuning"
KERNEL = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
    "net.core.somaxconn": "4096",
    "net.ipv4.tcp_max_syn_backlog": "4096",
    "net.ipv4.tcp_timestamps": "1",
    "net.core.rmem_default": "212992",
    "fs.file-max": "9223372036854775807",
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "1048576",
    "fs.nr_open": "1048576",
}
CAPABLE, NOT_CAPABLE = "000001ffffffffff", "000001fffeffffff"
LIMITS = "Max open files      {nofile} {nofile} files\nMax locked memory   {memlock} {memlock} bytes\n"


def node(
    speed: int = 100_000,
    capabilities: str = CAPABLE,
    services: tuple[str, ...] = ("containerd", "kubelet"),
    record: dict[str, Any] | None = None,
    **read: Any,
) -> dict[str, Any]:
    """What the role reads from a node: its facts and the result of tasks/read.yml, with ``read`` on top."""
    return {
        "ansible_facts": {
            "nodename": "GPU-01",
            "interfaces": ["lo", "eth0"],
            "default_ipv4": {"interface": "eth0"},
            "eth0": {"speed": speed},
        },
        "__host_tuning_node": {
            "record": record or {},
            "drop_ins": [],
            "sysctls": KERNEL,
            "process_1": {
                "limits": LIMITS.format(nofile=20000, memlock=8388608),
                "status": f"CapEff:\t{capabilities}",
                "uid_map": "0 0 4294967295",
            },
            "units": {name: unit(loaded=name in services) for name in ("containerd", "kubelet", "k3s-agent")},
            "running": {},
            "gpus": False,
            "gpu_link": False,
            **read,
        },
    }


def unit(
    nofile: str = "524288", memlock: str = "8388608", *, loaded: bool = True, waits: bool = False
) -> dict[str, str]:
    """What systemd shows of a service."""
    return {
        "LoadState": "loaded" if loaded else "not-found",
        "NeedDaemonReload": "yes" if waits else "no",
        "LimitNOFILE": nofile,
        "LimitMEMLOCK": memlock,
    }


ASKED_UNIT = unit("1048576", "infinity")
ASKED_PROCESS = LIMITS.format(nofile=1048576, memlock="unlimited")
EARLIER_PROCESS = LIMITS.format(nofile=524288, memlock=8388608)


def tuned(**read: Any) -> dict[str, Any]:
    """A node on which the role has done all with its defaults, with ``read`` on top."""
    first = node()
    record = on("__host_tuning_new_record", first)
    done: dict[str, Any] = {
        "units": {"kubelet": ASKED_UNIT},
        "running": {"kubelet": ASKED_PROCESS},
        "sysctls": KERNEL | wanted(first),
    }
    return node(record=record, **(done | read))


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
        ({"profile": "with space"}, "host_tuning_profile is with space, which cannot be the value of a label"),
        ({"profile": "a" * 64}, "cannot be the value of a label"),
        ({"kubeconfig": "/nowhere/config"}, "host_tuning_kubeconfig is /nowhere/config, which is no file"),
        ({"services": ["kubelet", "containrd"]}, "host_tuning_services names containrd, a unit that systemd"),
        ({"limit_nofile": "0"}, "host_tuning_limit_nofile is 0, less than services have without the role"),
        ({"limit_memlock": 65536}, "host_tuning_limit_memlock is 65536 bytes, less than services have"),
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
        ("net.ipv4.tcp_timestamps", "0", "net.ipv4.tcp_timestamps to 0"),
        ("net.ipv4.tcp_timestamps", " 0x0", "net.ipv4.tcp_timestamps to 0"),
        ("net/ipv4/tcp_timestamps", "0", "has the key net/ipv4/tcp_timestamps. Write names joined by dots"),
        ("net.ipv4.tcp_timestamps\n", "0", "Write names joined by dots"),
        ("net.ipv4.tcp_timestampz", "1", "net.ipv4.tcp_timestampz, which this node's kernel does not show"),
        ("fs.nr_open", "65536", "lowers fs.nr_open from 1048576 to 65536"),
        ("fs.file-max", "65536", "which the role manages and only ever raises"),
        ("net.core.rmem_default", "134217728", "memory for every socket"),
    ],
    ids=repr,
)
def test_an_extra_sysctl_that_harms_is_refused(key: str, value: str, words: str) -> None:
    extra = {"key": key, "value": value, "reason": "a blog said so", "reach": "host"}

    (sentence,) = refusals(node(), extra_sysctls=[extra])

    assert words in sentence


def test_an_extra_sysctl_that_raises_what_others_rely_on_is_accepted() -> None:
    extra = {"key": "fs.nr_open", "value": "2097152", "reason": "a database", "reach": "host"}

    assert refusals(node(), extra_sysctls=[extra]) == []


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


def test_a_container_is_not_asked_for_more_than_it_can_grant() -> None:
    assert refusals(node(capabilities=NOT_CAPABLE), limit_nofile=20000, limit_memlock=8388608) == []


def test_the_profile_s_hash_has_12_digits_and_changes_with_an_argument() -> None:
    same, other = on("__host_tuning_profile_hash", node()), on("__host_tuning_profile_hash", node(), somaxconn=8192)

    assert len(same) == 12
    assert int(same, 16) >= 0
    assert same == on("__host_tuning_profile_hash", node(), somaxconn="4096")
    assert same != other


@pytest.mark.parametrize(
    "described",
    [node(speed=-1), node(speed=400_000), node(capabilities=NOT_CAPABLE), node(services=("k3s-agent",))],
    ids=["link down", "faster link", "limits that are not granted", "K3s"],
)
def test_the_profile_s_hash_is_the_same_on_nodes_that_differ(described: dict[str, Any]) -> None:
    def profile_hash(where: dict[str, Any]) -> str:
        found: str = on("__host_tuning_profile_hash", where, limit_beyond_host="lower")
        return found

    assert profile_hash(described) == profile_hash(node())


def test_a_link_that_is_down_lowers_nothing_that_an_earlier_run_has_set() -> None:
    up = node(speed=400_000)
    record, live = on("__host_tuning_new_record", up), KERNEL | wanted(up)
    down = node(speed=-1, record=record, sysctls=live)

    assert live["net.ipv4.tcp_wmem"] == "4096 16384 20000000"
    assert wanted(down)["net.ipv4.tcp_wmem"] == "4096 16384 20000000"
    assert on("__host_tuning_new_record", down) == record


def test_a_link_that_is_down_may_have_taken_the_default_route_with_it() -> None:
    record = on("__host_tuning_new_record", node(speed=400_000))
    down = node(record=record)
    down["ansible_facts"] |= {"default_ipv4": {}, "eth0": {"speed": -1}}

    assert wanted(down)["net.ipv4.tcp_rmem"] == "4096 131072 20000000"


def test_the_speed_of_another_interface_says_nothing_about_this_one() -> None:
    record = on("__host_tuning_new_record", node(speed=400_000))
    down = node(speed=-1, record=record | {"interface": "bond0"})

    assert wanted(down)["net.ipv4.tcp_wmem"] == "4096 16384 6291456"


def test_a_node_on_which_everything_holds_keeps_its_label() -> None:
    assert on("__host_tuning_as_asked", tuned()) is True


@pytest.mark.parametrize(
    ("described", "arguments"),
    [
        (tuned(), {"limit_memlock": "68719476736"}),
        (tuned(), {"somaxconn": 8192}),
        (tuned(sysctls=KERNEL), {}),
        (tuned(running={"kubelet": EARLIER_PROCESS}), {}),
        (tuned(units={"kubelet": unit()}, running={}), {}),
        (node(), {}),
    ],
    ids=["higher limit", "other argument", "drift", "waits for a restart", "waits for a reload", "never prepared"],
)
def test_a_node_on_which_something_does_not_hold_loses_its_label_first(
    described: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert on("__host_tuning_as_asked", described, **arguments) is False


def test_wrong_kernel_values_are_found_also_where_a_reload_would_cut_off_gpus() -> None:
    held_back = tuned(sysctls=KERNEL, units={"kubelet": unit()}, gpus=True)

    assert on("__host_tuning_reload_ok", held_back) is False
    assert on("__host_tuning_findings", held_back) == [
        "net.ipv4.tcp_wmem is '4096 16384 4194304', not '4096 16384 6291456'",
        "net.ipv4.tcp_max_syn_backlog is '4096', not '8192'",
        "fs.inotify.max_user_instances is '128', not '8192'",
    ]


def test_limits_that_wait_for_a_reload_are_no_failure_but_are_named_also_for_a_service_that_does_not_run() -> None:
    held_back = tuned(units={"kubelet": unit()}, running={}, gpus=True)

    assert on("__host_tuning_findings", held_back) == []
    assert on("__host_tuning_waiting_services", held_back) == ["kubelet"]


def test_a_device_link_or_leave_makes_a_reload_harmless() -> None:
    held_back = tuned(units={"kubelet": unit()}, gpus=True)

    assert on("__host_tuning_findings", tuned(units={"kubelet": unit()}, gpus=True, gpu_link=True)) != []
    assert on("__host_tuning_reload_ok", held_back, restart_ok="true") is True


def left_to_undo(**read: Any) -> list[str]:
    described = node(record={"services": ["kubelet"]}, **read)
    found: list[str] = on(
        "__host_tuning_unreleased_services", described | {"__host_tuning_released_services": ["kubelet"]}
    )
    return found


def test_a_reset_is_not_finished_while_a_unit_waits_for_its_reload() -> None:
    units = {"kubelet": unit("1048576", "infinity", waits=True)}

    assert left_to_undo(units=units, running={"kubelet": ASKED_PROCESS}) == ["kubelet"]


def test_a_reset_is_not_finished_while_a_process_has_other_limits_than_its_unit() -> None:
    assert left_to_undo(units={"kubelet": unit()}, running={"kubelet": ASKED_PROCESS}) == ["kubelet"]


@pytest.mark.parametrize("running", [{}, {"kubelet": EARLIER_PROCESS}], ids=["stopped", "restarted"])
def test_a_reset_is_finished_once_no_process_has_the_role_s_limits(running: dict[str, str]) -> None:
    assert left_to_undo(units={"kubelet": unit()}, running=running) == []


def test_the_record_keeps_services_that_are_no_longer_asked_for() -> None:
    record = on("__host_tuning_new_record", node(record={"services": ["crio"]}))

    assert record["services"] == ["containerd", "crio", "kubelet"]


def test_the_node_s_name_is_its_host_name_in_lower_case_unless_given() -> None:
    assert on("__host_tuning_kubernetes_node", node()) == "gpu-01"
    assert on("__host_tuning_kubernetes_node", node(), node_name="worker-7") == "worker-7"
