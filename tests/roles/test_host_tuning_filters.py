"""The filters of host_tuning: plans, limits and findings from the texts that a node gives."""

from __future__ import annotations

from typing import Any

import pytest

from roles.host_tuning.filter_plugins import host_tuning

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 20000                files
Max locked memory         8388608              unlimited            bytes
"""
ALL_CAPABILITIES = "Name:\tsystemd\nCapEff:\t000001ffffffffff\n"
WITHOUT_SYS_RESOURCE = "Name:\tsystemd\nCapEff:\t000001fffeffffff\n"
INITIAL_NAMESPACE = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n"

SOMAXCONN: dict[str, Any] = {"key": "net.core.somaxconn", "at_least": 4096}
WMEM: dict[str, Any] = {"key": "net.ipv4.tcp_wmem", "at_least": 8_000_000}


@pytest.mark.parametrize(
    ("mbit", "rtt_ms", "expected"),
    [
        (0, 0.2, 6_291_456),
        (100_000, 0.2, 6_291_456),
        (100_000, 1, 25_000_000),
        (400_000, 0.2, 20_000_000),
        (400_000, 5, 67_108_864),
    ],
    ids=["unknown link", "100 Gbit/s, one room", "100 Gbit/s, one city", "400 Gbit/s", "beyond the cap"],
)
def test_a_buffer_is_twice_the_bytes_in_flight_between_floor_and_cap(mbit: int, rtt_ms: float, expected: int) -> None:
    assert host_tuning.tcp_buffer(mbit, rtt_ms, 6_291_456, 67_108_864) == expected


def test_only_the_last_word_of_a_value_is_raised() -> None:
    (item,) = host_tuning.sysctl_plan([WMEM], {WMEM["key"]: "4096 16384 4194304"}, {})

    assert item["wanted"] == "4096 16384 8000000"
    assert item["written"]


def test_a_kernel_that_has_more_keeps_it_and_the_file_says_nothing() -> None:
    (item,) = host_tuning.sysctl_plan([SOMAXCONN], {SOMAXCONN["key"]: "65535"}, {})

    assert (item["wanted"], item["written"]) == ("65535", False)
    assert host_tuning.sysctl_record([item]) == {}


def test_a_second_run_plans_what_the_first_one_did() -> None:
    first = host_tuning.sysctl_plan([WMEM], {WMEM["key"]: "4096 16384 4194304"}, {})
    record = host_tuning.sysctl_record(first)

    second = host_tuning.sysctl_plan([WMEM], {WMEM["key"]: "4096 16384 8000000"}, record)

    assert host_tuning.sysctl_record(second) == record
    assert second[0]["live"] == second[0]["wanted"]


def test_asking_for_less_than_last_time_goes_down_only_as_far_as_the_value_of_before() -> None:
    record = {SOMAXCONN["key"]: {"before": "5000", "set": "65535"}}

    (item,) = host_tuning.sysctl_plan([SOMAXCONN], {SOMAXCONN["key"]: "65535"}, record)

    assert (item["wanted"], item["written"]) == ("5000", False)


def test_a_value_that_somebody_else_raised_since_is_kept() -> None:
    record = {SOMAXCONN["key"]: {"before": "128", "set": "4096"}}

    (item,) = host_tuning.sysctl_plan([SOMAXCONN], {SOMAXCONN["key"]: "32768"}, record)

    assert (item["before"], item["wanted"], item["written"]) == ("32768", "32768", False)


def test_an_exact_value_is_written_even_where_the_kernel_has_it_already() -> None:
    setting = {"key": "vm.overcommit_memory", "value": "1"}

    (item,) = host_tuning.sysctl_plan([setting], {"vm.overcommit_memory": "1"}, {})

    assert item["written"]


def test_a_key_that_is_no_longer_asked_for_goes_back_unless_somebody_else_changed_it() -> None:
    record = {"a.ours": {"before": "1", "set": "2"}, "b.theirs": {"before": "1", "set": "2"}}

    plan = host_tuning.sysctl_plan([], {"a.ours": "2", "b.theirs": "3"}, record)

    assert {item["key"]: item["wanted"] for item in plan} == {"a.ours": "1", "b.theirs": "3"}
    assert host_tuning.sysctl_record(plan) == {}


def test_limits_are_read_with_unlimited_as_infinity() -> None:
    assert host_tuning.process_limits(LIMITS) == {
        "nofile": {"soft": 1024, "hard": 20000},
        "memlock": {"soft": 8388608, "hard": host_tuning.INFINITY},
    }


def test_infinity_is_written_as_systemd_writes_it() -> None:
    assert host_tuning.show_limit(host_tuning.parse_limit("infinity")) == "infinity"
    assert host_tuning.show_limit(host_tuning.parse_limit("20000")) == "20000"


@pytest.mark.parametrize("text", ["", "lots", "-1", "1.5"])
def test_a_limit_that_is_no_number_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=f"not {text!r}"):
        host_tuning.parse_limit(text)


@pytest.mark.parametrize(
    ("status", "uid_map", "granted"),
    [
        (ALL_CAPABILITIES, INITIAL_NAMESPACE, {"nofile": 1048576, "memlock": host_tuning.INFINITY}),
        (WITHOUT_SYS_RESOURCE, INITIAL_NAMESPACE, {"nofile": 20000, "memlock": host_tuning.INFINITY}),
        (ALL_CAPABILITIES, ROOTLESS, {"nofile": 20000, "memlock": host_tuning.INFINITY}),
    ],
    ids=["machine", "container without the capability", "user namespace"],
)
def test_systemd_can_grant_the_kernel_s_end_on_a_machine_and_its_own_limit_in_a_container(
    status: str, uid_map: str, granted: dict[str, int]
) -> None:
    texts = {"limits": LIMITS, "status": status, "uid_map": uid_map}

    assert host_tuning.granted_limits(texts, 1048576) == granted


def test_only_values_that_differ_are_given_to_sysctl() -> None:
    plan = [{"key": "a.b", "live": "1", "wanted": "1 2"}, {"key": "c.d", "live": "3", "wanted": "3"}]

    assert host_tuning.sysctl_settings(plan) == ["a.b=1 2"]


@pytest.mark.parametrize("value", ["0", "00", "0x0", "-0", " 0", "0 1", "0\n"])
def test_a_harmful_number_is_recognised_in_every_spelling(value: str) -> None:
    assert host_tuning.harmful([{"key": "a.b", "value": value}], {"a.b": 0}) == ["a.b"]


@pytest.mark.parametrize("value", ["1", "0a", "", "cubic", "10"])
def test_other_values_of_the_same_key_do_no_harm(value: str) -> None:
    assert host_tuning.harmful([{"key": "a.b", "value": value}, {"key": "c.d", "value": "0"}], {"a.b": 0}) == []


def test_a_service_whose_soft_limit_alone_differs_runs_with_other_limits() -> None:
    limits = {"nofile": 20000, "memlock": host_tuning.INFINITY}

    assert host_tuning.outdated_services({"kubelet": LIMITS}, limits) == ["kubelet"]


@pytest.mark.parametrize(
    ("unit", "left"),
    [
        ({"LimitNOFILE": "20000", "LimitMEMLOCK": "infinity"}, []),
        ({"LimitNOFILE": "infinity", "LimitMEMLOCK": "infinity"}, []),
        ({"LimitNOFILE": "4096", "LimitMEMLOCK": "infinity"}, ["kubelet"]),
        ({"LimitNOFILE": "20000", "LimitMEMLOCK": "8388608"}, ["kubelet"]),
    ],
    ids=["the same", "more than systemd may grant", "other files", "other memory"],
)
def test_a_restart_is_left_where_a_hard_limit_is_not_what_systemd_would_give(
    unit: dict[str, str], left: list[str]
) -> None:
    granted = {"nofile": 20000, "memlock": host_tuning.INFINITY}

    assert host_tuning.unrestarted_services({"kubelet": LIMITS}, {"kubelet": unit}, granted) == left


def test_findings_name_the_key_and_both_values() -> None:
    plan = [{"key": "a.b", "live": "1", "wanted": "2"}, {"key": "c.d", "live": "3", "wanted": "3"}]
    shown = {"kubelet": {"LimitNOFILE": "524288", "LimitMEMLOCK": "infinity"}}

    assert host_tuning.kernel_findings(plan) == ["a.b is '1', not '2'"]
    assert host_tuning.unit_findings(shown, {"nofile": 1048576, "memlock": host_tuning.INFINITY}) == {
        "kubelet": ["LimitNOFILE of kubelet is 524288, not 1048576"]
    }
