"""The filters of container_runtime that deal with limits, on texts that a node gives."""

from __future__ import annotations

import pytest

from roles.container_runtime.filter_plugins import container_runtime_limits as limits

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 20000                files
Max locked memory         8388608              unlimited            bytes
"""
ALL_CAPABILITIES = "Name:\tsystemd\nCapEff:\t000001ffffffffff\n"
WITHOUT_SYS_RESOURCE = "Name:\tsystemd\nCapEff:\t000001fffeffffff\n"
INITIAL_NAMESPACE = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n"


def test_limits_are_read_with_unlimited_as_infinity() -> None:
    assert limits.process_limits(LIMITS) == {
        "nofile": {"soft": 1024, "hard": 20000},
        "memlock": {"soft": 8388608, "hard": limits.INFINITY},
    }


def test_infinity_is_written_as_systemd_writes_it() -> None:
    assert limits.show_limit(limits.parse_limit("infinity")) == "infinity"
    assert limits.show_limit(limits.parse_limit("20000")) == "20000"


@pytest.mark.parametrize("text", ["", "lots", "-1", "1.5"])
def test_a_limit_that_is_no_number_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=f"not {text!r}"):
        limits.parse_limit(text)


@pytest.mark.parametrize(
    ("status", "uid_map", "granted"),
    [
        (ALL_CAPABILITIES, INITIAL_NAMESPACE, {"nofile": 1048576, "memlock": limits.INFINITY}),
        (WITHOUT_SYS_RESOURCE, INITIAL_NAMESPACE, {"nofile": 20000, "memlock": limits.INFINITY}),
        (ALL_CAPABILITIES, ROOTLESS, {"nofile": 20000, "memlock": limits.INFINITY}),
    ],
    ids=["machine", "container without the capability", "user namespace"],
)
def test_systemd_can_grant_the_kernel_s_end_on_a_machine_and_its_own_limit_in_a_container(
    status: str, uid_map: str, granted: dict[str, int]
) -> None:
    texts = {"limits": LIMITS, "status": status, "uid_map": uid_map}

    assert limits.granted_limits(texts, 1048576) == granted


def test_a_service_whose_soft_limit_alone_differs_runs_with_other_limits() -> None:
    asked = {"nofile": 20000, "memlock": limits.INFINITY}

    assert limits.outdated_services({"kubelet": LIMITS}, asked) == ["kubelet"]


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
    granted = {"nofile": 20000, "memlock": limits.INFINITY}

    assert limits.unrestarted_services({"kubelet": LIMITS}, {"kubelet": unit}, granted) == left


def test_a_limit_is_lowered_to_what_is_granted_and_never_raised() -> None:
    asked = {"nofile": 1048576, "memlock": limits.INFINITY}

    assert limits.lowered_limits(asked, {"nofile": 20000, "memlock": limits.INFINITY}) == asked | {"nofile": 20000}
    assert limits.lowered_limits(asked, {}) == asked


def test_findings_name_the_limit_and_both_values() -> None:
    shown = {"kubelet": {"LimitNOFILE": "524288", "LimitMEMLOCK": "infinity"}}

    assert limits.unit_findings(shown, {"nofile": 1048576, "memlock": limits.INFINITY}) == {
        "kubelet": ["LimitNOFILE of kubelet is 524288, not 1048576"]
    }
