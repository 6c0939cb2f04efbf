"""Which arguments host_tuning refuses on a node, and which it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.host_tuning_node import KERNEL, node, refusals, tuned


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"somaxconn": 128}, "host_tuning_somaxconn is 128"),
        ({"tcp_buffer_floor": 4194304}, "host_tuning_tcp_buffer_floor is 4194304"),
        ({"tcp_buffer_cap": 1048576}, "host_tuning_tcp_buffer_cap is 1048576"),
        ({"rtt_ms": 0}, "host_tuning_rtt_ms is 0"),
        ({"rtt_ms": "nan"}, "host_tuning_rtt_ms is nan"),
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


def test_what_would_change_and_cannot_be_written_is_refused_before_anything_changes() -> None:
    """Known failure B23: /proc/sys is read-only in a container without privileges."""
    locked = node(read_only=list(KERNEL))
    (sentence,) = refusals(locked)

    assert "net.ipv4.tcp_wmem" in sentence
    assert "net.core.somaxconn" not in sentence
    assert "/proc/sys is read-only" in sentence
    assert refusals(tuned(read_only=list(KERNEL))) == []


def test_a_congestion_control_that_the_kernel_does_not_have_is_refused_with_those_it_has() -> None:
    """Known failure B23: an image role of a cloud asks for one that does not exist."""
    (sentence,) = refusals(node(), congestion_control="brr")

    assert "host_tuning_congestion_control is brr" in sentence
    assert "It has cubic, reno." in sentence


def test_a_read_only_file_system_is_refused_before_anything_changes_unless_nothing_is_to_change() -> None:
    (sentence,) = refusals(node(unwritable=["/etc", "/var/lib"]))

    assert "/etc, /var/lib on this node cannot be written to" in sentence
    assert refusals(tuned(unwritable=["/etc"])) == []
