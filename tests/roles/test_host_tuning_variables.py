"""What host_tuning's variables come to on a node, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.host_tuning_node import KERNEL, ROLE, nic, node, on, refusals, tuned, wanted
from tests.roles.templating import load


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


def test_the_reason_for_arp_names_subnet_and_interfaces() -> None:
    shown = on("__host_tuning_report.sysctls", node(nics=(RAIL,)))

    assert "10.0.0.0/24 (eth0, eth1)" in next(item["reason"] for item in shown if item["key"].endswith("arp_ignore"))


def test_the_same_argument_in_other_words_changes_no_file() -> None:
    """`-e host_tuning_rtt_ms=0.20` is text."""
    assert on("__host_tuning_texts", node(), rtt_ms="0.20") == on("__host_tuning_texts", node(), rtt_ms=0.2)


def test_a_reason_of_several_lines_stays_a_comment() -> None:
    extra = {
        "key": "net.ipv4.tcp_fin_timeout",
        "value": "30",
        "reach": "host",
        "reason": "of the test\nkernel.panic = 1\n",
    }
    described = node(sysctls={**KERNEL, extra["key"]: "60"})

    assert "# [host] of the test kernel.panic = 1\n" in on(
        "__host_tuning_texts.sysctl", described, extra_sysctls=[extra]
    )


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
