"""The filters of host_tuning: plans and findings from the texts that a node gives."""

from __future__ import annotations

from typing import Any

import pytest

from roles.host_tuning.filter_plugins import host_tuning

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


def test_an_exact_value_is_that_of_the_kernel_however_its_words_are_apart() -> None:
    setting = {"key": "net.ipv4.ip_local_port_range", "value": " 32768\t60999\n"}

    (item,) = host_tuning.sysctl_plan([setting], {"net.ipv4.ip_local_port_range": "32768 60999"}, {})

    assert item["wanted"] == item["live"]


def test_a_key_that_is_no_longer_asked_for_goes_back_unless_somebody_else_changed_it() -> None:
    record = {"a.ours": {"before": "1", "set": "2"}, "b.theirs": {"before": "1", "set": "2"}}

    plan = host_tuning.sysctl_plan([], {"a.ours": "2", "b.theirs": "3"}, record)

    assert {item["key"]: item["wanted"] for item in plan} == {"a.ours": "1", "b.theirs": "3"}
    assert host_tuning.sysctl_record(plan).keys() == {"a.ours"}  # until it is back


@pytest.mark.parametrize("at_least", [[9000], [9000, 9500], [9000, 1]], ids=["raised", "raised twice", "given up"])
def test_what_was_before_outlives_runs_that_break_off_between_the_record_and_the_kernel(at_least: list[int]) -> None:
    key = SOMAXCONN["key"]
    record = {key: {"before": "128", "set": "8192"}}

    for amount in at_least:
        record = host_tuning.sysctl_record(
            host_tuning.sysctl_plan([SOMAXCONN | {"at_least": amount}], {key: "8192"}, record)
        )
    broken_off_too = host_tuning.sysctl_record(host_tuning.sysctl_plan([], {key: "8192"}, record))

    for kept in (record, broken_off_too):
        (undone,) = host_tuning.sysctl_plan([], {key: "8192"}, kept)
        assert undone["wanted"] == "128"


def test_a_key_that_the_kernel_does_not_show_is_left_out_of_the_plan() -> None:
    assert host_tuning.sysctl_plan([SOMAXCONN], {}, {"a.gone": {"before": "1", "set": "2"}}) == []


def test_only_values_that_differ_are_written() -> None:
    plan = [{"key": "a.b", "live": "1", "wanted": "1 2"}, {"key": "c.d", "live": "3", "wanted": "3"}]

    assert host_tuning.sysctl_values(plan) == {"a.b": "1 2"}


@pytest.mark.parametrize("value", ["0", "00", "0x0", "-0", " 0", "0 1", "0\n"])
def test_a_harmful_number_is_recognised_in_every_spelling(value: str) -> None:
    assert host_tuning.harmful([{"key": "a.b", "value": value}], {"a.b": 0}) == ["a.b"]


@pytest.mark.parametrize("value", ["1", "0a", "", "cubic", "10"])
def test_other_values_of_the_same_key_do_no_harm(value: str) -> None:
    assert host_tuning.harmful([{"key": "a.b", "value": value}, {"key": "c.d", "value": "0"}], {"a.b": 0}) == []


def test_findings_name_the_key_and_both_values() -> None:
    plan = [{"key": "a.b", "live": "1", "wanted": "2"}, {"key": "c.d", "live": "3", "wanted": "3"}]

    (finding,) = host_tuning.kernel_findings(plan)

    assert (finding["severity"], finding["what"]) == ("error", "a.b is '1', not '2'.")


@pytest.mark.parametrize(("value", "expected"), [("1", ["a.b from 2 to 1"]), ("2", []), ("0x10", []), ("fq", [])])
def test_a_value_below_what_the_kernel_has_lowers_it(value: str, expected: list[str]) -> None:
    assert host_tuning.lowering([{"key": "a.b", "value": value}], {"a.b": "2"}, ["a.b"]) == expected


def test_only_keys_that_others_rely_on_may_not_be_lowered() -> None:
    assert host_tuning.lowering([{"key": "a.b", "value": "1"}], {"a.b": "2"}, ["c.d"]) == []
