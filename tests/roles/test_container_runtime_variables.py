"""What container_runtime's limits come to on a node, and which arguments it refuses, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.container_runtime_node import (
    ASKED_PROCESS,
    ASKED_UNIT,
    DROP_IN,
    EARLIER_PROCESS,
    LIMITS,
    MAIN,
    NOT_CAPABLE,
    node,
    on,
    prepared,
    refusals,
    status,
    unit,
)


def test_the_defaults_are_fit_for_a_machine() -> None:
    assert refusals(node()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"services": ["kubelet", "containrd"]}, "container_runtime_services names containrd, a unit that systemd"),
        ({"limit_nofile": "0"}, "container_runtime_limit_nofile is 0, less than services have without the role"),
        ({"limit_memlock": 65536}, "container_runtime_limit_memlock is 65536 bytes, less than services have"),
        # B20: with infinity, programs allocate memory for a thousand million files.
        ({"limit_nofile": "infinity"}, "container_runtime_limit_nofile is infinity, more than this node's fs.nr_open"),
        ({"limit_nofile": 2097152}, "container_runtime_limit_nofile is 2097152, more than this node's fs.nr_open"),
        ({"limit_nofile": "1e6"}, "container_runtime_limit_nofile is 1e6. Give a whole number of files"),
        (
            {"limit_memlock": -1},
            "container_runtime_limit_memlock is -1. Give bytes as a whole number, in digits, or infinity",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_harms_is_refused_in_one_sentence(arguments: dict[str, Any], words: str) -> None:
    (sentence,) = refusals(node(), **arguments)

    assert words in sentence


def test_a_read_only_file_system_is_refused_before_anything_changes_unless_nothing_is_to_change() -> None:
    assert "/etc on this node cannot be written to" in refusals(node(unwritable=["/etc"]))[0]
    assert refusals(prepared(unwritable=["/etc"])) == []


def test_all_broken_rules_are_told_together() -> None:
    assert len(refusals(node(), limit_nofile=1, limit_memlock=1)) == 2


def test_a_machine_on_its_way_into_a_cluster_is_passed_over_and_says_why() -> None:
    report = on("__container_runtime_report", node(services=()))

    assert refusals(node(services=())) == []
    assert on("__container_runtime_as_asked", node(services=())) is True
    assert report["status"] == "skipped"
    assert "Run again when it is a member of its cluster." in report["why"]


def test_the_services_of_k3s_are_found_as_those_of_kubeadm_are() -> None:
    assert on("__container_runtime_services", node(services=("k3s-agent",))) == ["k3s-agent"]
    assert on("__container_runtime_services", node()) == ["containerd", "kubelet"]


def test_limits_that_a_container_cannot_grant_are_refused_with_what_it_can() -> None:
    nofile, memlock = refusals(node(capabilities=NOT_CAPABLE))

    assert "may grant at most 20000" in nofile
    assert "may grant at most 8388608 bytes" in memlock


def test_limits_that_a_container_cannot_grant_are_lowered_where_that_is_asked_for() -> None:
    container = node(capabilities=NOT_CAPABLE)

    assert refusals(container, limit_beyond_host="lower") == []
    assert on("__container_runtime_limits", container, limit_beyond_host="lower") == {
        "nofile": 20000,
        "memlock": 8388608,
    }


def test_lowering_leaves_limits_alone_that_the_node_grants() -> None:
    asked = on("__container_runtime_asked_limits", node())

    assert on("__container_runtime_limits", node(), limit_beyond_host="lower") == asked


def test_a_container_is_not_asked_for_more_than_it_can_grant() -> None:
    assert refusals(node(capabilities=NOT_CAPABLE), limit_nofile=20000, limit_memlock=8388608) == []


def left_to_undo(**read: Any) -> list[str]:
    described = node(record={"services": ["kubelet"]}, **read)
    found: list[str] = on(
        "__container_runtime_unreleased_services", described | {"__container_runtime_released_services": ["kubelet"]}
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


def test_a_reset_does_not_stop_a_runtime_that_would_not_start_again() -> None:
    def described(text: str) -> dict[str, Any]:
        started = {"containerd": unit() | {"ExecMainStartTimestampMonotonic": "77"}}
        config = {"path": MAIN["path"], "files": [MAIN | {"text": text}]}
        facts = {"__container_runtime_reset_start": "77", "__container_runtime_released_services": ["containerd"]}
        return node(units=started, config=config) | facts

    assert on("__container_runtime_released_restarts", described("version = 3")) == ["containerd"]
    assert on("__container_runtime_released_restarts", described("version =")) == []
    assert "is not TOML" in on("__container_runtime_reset_why", described("version ="))


def test_the_record_keeps_services_that_are_no_longer_asked_for() -> None:
    record = on("__container_runtime_new_record", node(record={"services": ["crio"], "files": {}}))

    assert record["services"] == ["containerd", "crio", "kubelet"]


def test_a_node_on_which_everything_holds_keeps_its_label() -> None:
    assert on("__container_runtime_as_asked", prepared()) is True
    assert status(prepared()) == "ok"


@pytest.mark.parametrize(
    ("described", "arguments"),
    [
        (prepared(), {"limit_memlock": "68719476736"}),
        (prepared(drop_ins={}), {}),
        (prepared(drop_ins={DROP_IN: "edited"}), {}),
        (prepared(running={"kubelet": EARLIER_PROCESS}), {}),
        (prepared(units={"kubelet": ASKED_UNIT | {"NeedDaemonReload": "yes"}}), {}),
        (prepared(units={"kubelet": unit()}, running={}), {}),
        (node(), {}),
    ],
    ids=["higher limit", "no drop-in", "other drop-in", "old process", "unread drop-in", "old unit", "never prepared"],
)
def test_a_node_on_which_something_does_not_hold_loses_its_label_first(
    described: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert on("__container_runtime_as_asked", described, **arguments) is False


def test_limits_that_wait_for_a_reload_are_no_failure_but_are_named_also_for_a_service_that_does_not_run() -> None:
    held_back = prepared(
        units={"kubelet": unit()}, running={}, gpus={"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": 1}
    )

    report = on("__container_runtime_report", held_back)

    assert report["status"] == "waiting"
    assert report["restart_services"] == ["kubelet"]
    assert (
        "kubelet do not have the limits asked for yet (LimitNOFILE of kubelet is 524288, not 1048576" in report["why"]
    )


def test_limits_that_do_not_hold_after_a_restart_that_was_allowed_are_a_failure() -> None:
    assert status(prepared(running={"kubelet": EARLIER_PROCESS})) == "waiting"
    assert status(prepared(running={"kubelet": EARLIER_PROCESS}), restart_ok=True) == "failed"


def test_a_drop_in_that_is_not_there_is_a_failure_also_without_leave_to_restart() -> None:
    assert status(prepared(drop_ins={})) == "failed"


def test_limits_that_were_lowered_are_told_and_are_no_failure() -> None:
    units, running = {"kubelet": unit("20000", "8388608")}, {"kubelet": LIMITS.format(nofile=20000, memlock=8388608)}
    container = prepared(capabilities=NOT_CAPABLE, units=units, running=running)

    report = on("__container_runtime_report", container, limit_beyond_host="lower")

    assert report["status"] == "ok"
    assert [finding["severity"] for finding in report["findings"]] == ["warning", "info"]
    assert "at most nofile 20000 and memlock 8388608" in report["findings"][0]["what"]


def test_what_was_asked_for_is_the_same_on_nodes_that_differ() -> None:
    arguments: dict[str, Any] = {"limit_beyond_host": "lower"}
    asked = on("__container_runtime_asked", node(), **arguments)

    assert asked == on("__container_runtime_asked", node(capabilities=NOT_CAPABLE), **arguments)
    assert asked == on("__container_runtime_asked", node(services=("k3s-agent",)), **arguments)
    assert asked != on("__container_runtime_asked", node(), limit_memlock="68719476736", **arguments)
