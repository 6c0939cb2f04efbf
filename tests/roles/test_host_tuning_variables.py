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


def node(
    speed: int = 100_000,
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
            "sysctls": KERNEL,
            **read,
        },
    }


def tuned(**read: Any) -> dict[str, Any]:
    """A node on which the role has done all with its defaults, with ``read`` on top."""
    first = node()
    record = on("__host_tuning_new_record", first)
    return node(record=record, **({"sysctls": KERNEL | wanted(first)} | read))


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


def test_what_was_asked_for_is_the_same_also_as_text_from_the_command_line() -> None:
    asked = on("__host_tuning_asked", node())

    assert on("__host_tuning_asked", node(), somaxconn="4096") == asked
    assert on("__host_tuning_asked", node(), somaxconn=8192) != asked


@pytest.mark.parametrize("described", [node(speed=-1), node(speed=400_000)], ids=["link down", "faster link"])
def test_what_was_asked_for_is_the_same_on_nodes_that_differ(described: dict[str, Any]) -> None:
    assert on("__host_tuning_asked", described) == on("__host_tuning_asked", node())


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


def test_wrong_kernel_values_are_found() -> None:
    assert on("__host_tuning_findings", tuned(sysctls=KERNEL)) == [
        "net.ipv4.tcp_wmem is '4096 16384 4194304', not '4096 16384 6291456'",
        "net.ipv4.tcp_max_syn_backlog is '4096', not '8192'",
        "fs.inotify.max_user_instances is '128', not '8192'",
    ]


def test_the_report_says_whether_the_node_is_as_asked_and_what_to_do() -> None:
    failed = on("__host_tuning_report", tuned(sysctls=KERNEL))

    assert on("__host_tuning_report.status", tuned()) == "ok"
    assert failed["status"] == "failed"
    assert [set(finding) for finding in failed["findings"]] == [{"severity", "what", "fix"}]
