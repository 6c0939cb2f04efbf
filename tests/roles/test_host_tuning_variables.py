"""What host_tuning's variables come to on a node, and which arguments it refuses, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/host_tuning"
KERNEL = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
    "net.core.somaxconn": "4096",
    "net.ipv4.tcp_max_syn_backlog": "4096",
    "net.ipv4.tcp_timestamps": "1",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.ip_forward": "1",
    "net.core.rmem_default": "212992",
    "fs.file-max": "9223372036854775807",
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "1048576",
    "fs.nr_open": "1048576",
    "kernel.pid_max": "4194304",
    "vm.max_map_count": "65530",
    "net.core.netdev_max_backlog": "1000",
    "net.core.rmem_max": "212992",
    "net.core.wmem_max": "212992",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.conf.all.arp_ignore": "0",
    "net.ipv4.conf.all.arp_announce": "0",
}


def nic(name: str, *ipv4: str, **told: Any) -> dict[str, Any]:
    """An interface as machine_facts has it."""
    return {"name": name, "kind": "physical", "up": True, "speed_mbit": None, "ipv4": list(ipv4)} | told


def node(
    speed: int | None = 100_000,
    record: dict[str, Any] | None = None,
    nics: tuple[dict[str, Any], ...] = (),
    **read: Any,
) -> dict[str, Any]:
    """What the role reads from a node: machine_facts and the result of tasks/read.yml, with ``read`` on top."""
    return {
        "machine_facts": {
            "nics": [nic("lo", "127.0.0.1/8", kind="loopback"), nic("eth0", "10.0.0.5/24", speed_mbit=speed), *nics],
            "default_interface": "eth0",
            "memory_mib": 65536,
            "numa": [{"node": 0, "cpus": [0, 1]}, {"node": 1, "cpus": [2, 3]}, {"node": 2, "cpus": []}],
            "hugepages": [{"size_kib": 2048, "total": 0, "node": 0}],
        },
        "ansible_managed": "Ansible managed",
        "ansible_search_path": [str(ROLE)],
        "__host_tuning_node": {
            "record": record or {},
            "files": {"sysctl": "", "modules": "", "tmpfiles": ""},
            "sysctls": KERNEL,
            "later": {},
            "read_only": [],
            "congestion_controls": ["reno", "cubic"],
            "congestion_module": False,
            "unwritable": [],
            **read,
        },
    }


def tuned(**read: Any) -> dict[str, Any]:
    """A node on which the role has done all with its defaults, with ``read`` on top."""
    first = node()
    record, live = on("__host_tuning_new_record", first), KERNEL | wanted(first)
    done = node(record=record, sysctls=live)
    files = on("__host_tuning_texts", done)
    return node(record=record, **({"sysctls": live, "files": files} | read))


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


def test_an_interface_that_does_not_tell_its_speed_gets_the_floor() -> None:
    assert wanted(node(speed=None))["net.ipv4.tcp_wmem"] == "4096 16384 6291456"


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
        ("net.ipv4.tcp_window_scaling", "0", "no connection has more than 64 KiB in flight"),
        ("net.ipv4.ip_forward", "0", "pods reach nothing beyond their node"),
        ("fs.nr_open", "65536", "lowers fs.nr_open from 1048576 to 65536"),
        ("kernel.pid_max", "32768", "lowers kernel.pid_max from 4194304 to 32768"),
        ("fs.file-max", "65536", "Use host_tuning_file_max instead"),
        ("net.core.somaxconn", "128", "Use host_tuning_somaxconn instead"),
        ("net.ipv4.tcp_congestion_control", "brr", "Use host_tuning_congestion_control instead"),
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


def test_what_was_asked_for_is_the_same_also_as_text_from_the_command_line() -> None:
    asked = on("__host_tuning_asked", node())

    assert on("__host_tuning_asked", node(), somaxconn="4096") == asked
    assert on("__host_tuning_asked", node(), somaxconn=8192) != asked


@pytest.mark.parametrize("described", [node(speed=None), node(speed=400_000)], ids=["link down", "faster link"])
def test_what_was_asked_for_is_the_same_on_nodes_that_differ(described: dict[str, Any]) -> None:
    assert on("__host_tuning_asked", described) == on("__host_tuning_asked", node())


def test_a_link_that_is_down_lowers_nothing_that_an_earlier_run_has_set() -> None:
    up = node(speed=400_000)
    record, live = on("__host_tuning_new_record", up), KERNEL | wanted(up)
    down = node(speed=None, record=record, sysctls=live)

    assert live["net.ipv4.tcp_wmem"] == "4096 16384 20000000"
    assert wanted(down)["net.ipv4.tcp_wmem"] == "4096 16384 20000000"
    assert on("__host_tuning_new_record", down) == record


def test_a_link_that_is_down_may_have_taken_the_default_route_with_it() -> None:
    record = on("__host_tuning_new_record", node(speed=400_000))
    down = node(record=record)
    down["machine_facts"] |= {"default_interface": "", "nics": []}

    assert wanted(down)["net.ipv4.tcp_rmem"] == "4096 131072 20000000"


def test_the_speed_of_another_interface_says_nothing_about_this_one() -> None:
    record = on("__host_tuning_new_record", node(speed=400_000))
    down = node(speed=None, record=record | {"interface": "bond0"})

    assert wanted(down)["net.ipv4.tcp_wmem"] == "4096 16384 6291456"


def test_a_node_on_which_everything_holds_keeps_its_label() -> None:
    assert on("__host_tuning_as_asked", tuned()) is True


@pytest.mark.parametrize(
    ("described", "arguments"),
    [
        (tuned(), {"somaxconn": 8192}),
        (tuned(sysctls=KERNEL), {}),
        (node(), {}),
    ],
    ids=["other argument", "drift", "never prepared"],
)
def test_a_node_on_which_something_does_not_hold_loses_its_label_first(
    described: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert on("__host_tuning_as_asked", described, **arguments) is False


def errors(described: dict[str, Any], **arguments: Any) -> list[str]:
    found: list[str] = on("__host_tuning_errors", described, **arguments)
    return found


def test_wrong_kernel_values_are_found() -> None:
    assert errors(tuned(sysctls=KERNEL)) == [
        "net.ipv4.tcp_wmem is '4096 16384 4194304', not '4096 16384 6291456'.",
        "net.ipv4.tcp_max_syn_backlog is '4096', not '8192'.",
        "net.core.netdev_max_backlog is '1000', not '10000'.",
        "vm.max_map_count is '65530', not '262144'.",
        "fs.inotify.max_user_instances is '128', not '8192'.",
    ]


def test_values_that_would_not_hold_after_a_boot_are_found() -> None:
    assert errors(tuned(files={"sysctl": "", "modules": ""})) == [
        "The files that set values at boot are not what the role writes."
    ]


def test_a_file_that_would_undo_a_value_at_the_next_boot_is_found() -> None:
    rival = {"file": "/etc/sysctl.d/zz-cloud.conf", "value": "4096 16384 4194304"}

    assert errors(tuned(later={"net.ipv4.tcp_wmem": rival})) == [
        "/etc/sysctl.d/zz-cloud.conf sets net.ipv4.tcp_wmem to '4096 16384 4194304' at the next boot."
    ]
    assert errors(tuned(later={"net.core.somaxconn": rival})) == []
    assert errors(tuned(later={"net.ipv4.tcp_wmem": rival | {"value": "4096 16384 6291456"}})) == []


def test_values_of_the_host_that_a_container_does_not_show_are_left_out_and_named() -> None:
    """Known failure B22: what a network namespace does not show is not set there."""
    live = {key: value for key, value in KERNEL.items() if key != "net.core.netdev_max_backlog"}
    container = node(sysctls=live)
    (info,) = [finding for finding in on("__host_tuning_findings", container) if finding["severity"] == "info"]

    assert "net.core.netdev_max_backlog" not in wanted(container)
    assert info["what"] == "The kernel does not show net.core.netdev_max_backlog here."
    assert refusals(container) == []


def test_what_would_change_and_cannot_be_written_is_refused_before_anything_changes() -> None:
    """Known failure B23: /proc/sys is read-only in a container without privileges."""
    locked = node(read_only=list(KERNEL))
    (sentence,) = refusals(locked)

    assert "net.ipv4.tcp_wmem" in sentence
    assert "net.core.somaxconn" not in sentence
    assert "/proc/sys is read-only" in sentence
    assert refusals(tuned(read_only=list(KERNEL))) == []


def test_a_congestion_control_that_the_kernel_has_is_set_for_new_pods() -> None:
    described = node(congestion_controls=["reno", "bbr", "cubic"])

    assert refusals(described, congestion_control="bbr") == []
    assert wanted(described, congestion_control="bbr")["net.ipv4.tcp_congestion_control"] == "bbr"
    assert on("__host_tuning_texts.modules", described, congestion_control="bbr") == ""


def test_a_congestion_control_that_is_a_module_is_loaded_at_boot() -> None:
    """Known failure B23."""
    described = node(congestion_module=True)

    assert refusals(described, congestion_control="bbr") == []
    assert on("__host_tuning_texts.modules", described, congestion_control="bbr").splitlines()[-1] == "tcp_bbr"


def test_a_congestion_control_that_the_kernel_does_not_have_is_refused_with_those_it_has() -> None:
    """Known failure B23: an image role of a cloud asks for one that does not exist."""
    (sentence,) = refusals(node(), congestion_control="brr")

    assert "host_tuning_congestion_control is brr" in sentence
    assert "It has cubic, reno." in sentence


def test_buffers_that_programs_ask_for_are_left_alone_unless_that_is_asked_for() -> None:
    assert "net.core.rmem_max" not in wanted(node())
    assert wanted(node(), socket_buffer_max=67108864)["net.core.rmem_max"] == "67108864"
    assert wanted(node(), socket_buffer_max=65536)["net.core.wmem_max"] == "212992"


RAIL = nic("eth1", "10.0.0.6/24")


@pytest.mark.parametrize(
    ("nics", "arguments", "expected"),
    [
        ((), {}, None),
        ((RAIL,), {}, "2"),
        ((RAIL,), {"arp": "never"}, None),
        ((), {"arp": "always"}, "2"),
        ((nic("eth1", "10.0.1.6/24"),), {}, None),
        ((nic("cni0", "10.0.0.1/24", kind="bridge"),), {}, None),
        ((nic("eth1", "10.0.0.6/24", up=False),), {}, None),
    ],
    ids=["one", "two in a subnet", "never", "always", "two subnets", "a bridge of pods", "one is down"],
)
def test_interfaces_of_one_subnet_answer_for_their_own_addresses_only(
    nics: tuple[dict[str, Any], ...], arguments: dict[str, Any], expected: str | None
) -> None:
    assert wanted(node(nics=nics), **arguments).get("net.ipv4.conf.all.arp_announce") == expected


def test_a_read_only_file_system_is_refused_before_anything_changes_unless_nothing_is_to_change() -> None:
    (sentence,) = refusals(node(unwritable=["/etc", "/var/lib"]))

    assert "/etc, /var/lib on this node cannot be written to" in sentence
    assert refusals(tuned(unwritable=["/etc"])) == []


def test_the_reason_for_arp_names_subnet_and_interfaces() -> None:
    shown = on("__host_tuning_report.sysctls", node(nics=(RAIL,)))

    assert "10.0.0.0/24 (eth0, eth1)" in next(item["reason"] for item in shown if item["key"].endswith("arp_ignore"))


def test_every_value_says_where_it_takes_effect() -> None:
    shown = on("__host_tuning_report.sysctls", tuned())

    assert {item["reach"] for item in shown} == {"host", "new pods", "needs pod setting"}
    assert all(item["reason"] for item in shown)


def test_every_managed_key_names_arguments_that_exist() -> None:
    arguments = load(ROLE / "defaults/main.yml")
    managed = on("__host_tuning_arguments", node())
    every = {"socket_buffer_max": 1, "congestion_control": "bbr", "default_qdisc": "fq", "arp": "always"}

    assert {name for names in managed.values() for name in names.split(" or ")} <= set(arguments)
    assert {item["key"] for item in on("__host_tuning_own_sysctls", node(), **every)} == set(managed)


def test_the_report_says_whether_the_node_is_as_asked_and_what_to_do() -> None:
    failed = on("__host_tuning_report", tuned(sysctls=KERNEL))

    assert on("__host_tuning_report.status", tuned()) == "ok"
    assert failed["status"] == "failed"
    assert failed["findings"][0]["fix"] == "Run playbooks/site.yml."
