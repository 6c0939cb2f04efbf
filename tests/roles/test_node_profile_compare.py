"""The report over all nodes: states, findings with fixes, and what differs from the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from roles.node_profile.filter_plugins.node_profile_compare import compare, differences, render, sentences

ORDER = ["preflight", "host_tuning", "rdma"]
FINDING = {"severity": "error", "what": "net.core.somaxconn is 128, not 4096", "fix": "run site.yml"}


def report(status: str = "ok", why: str = "", *findings: dict[str, str]) -> dict[str, Any]:
    return {"status": status, "why": why, "findings": list(findings), "asked": {}}


def node(failure: str = "", features: dict[str, str] | None = None, **reports: dict[str, Any]) -> dict[str, Any]:
    return {
        "reports": reports,
        "features": {"driver": "580.95.05"} if features is None else features,
        "kind": "GPU nodes",
        "failure": failure,
    }


def many(**odd: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Ten nodes alike, but for the features named by node."""
    usual = {"driver": "580.95.05", "MTU of eth1": "9000"}
    return {
        name: node(features=usual | odd.get(name, {}), host_tuning=report())
        for name in (f"node{number}" for number in range(10))
    }


def text(nodes: dict[str, dict[str, Any]]) -> str:
    return render(compare(nodes, ORDER), "text")


def test_a_node_that_differs_is_named_with_what_it_has_and_what_the_others_have() -> None:
    found = differences(many(node7={"driver": "575.57.08", "MTU of eth1": "1500"}))

    assert sentences(found) == [
        "node7 differs: driver 575.57.08 (others 580.95.05), MTU of eth1 1500 (others 9000)",
    ]


def test_nodes_that_are_alike_differ_in_nothing() -> None:
    assert differences(many()) == []
    assert "Differences" not in text(many())


def test_without_a_majority_no_side_is_called_odd() -> None:
    two = {"a": node(features={"driver": "575.57.08"}), "b": node(features={"driver": "580.95.05"})}

    assert sentences(differences(two)) == ["driver is not the same: 575.57.08 on a, 580.95.05 on b"]


def test_what_one_node_lacks_and_what_only_one_has_are_differences_too() -> None:
    three = {name: node(features={"speed of eth1": "100000 Mbit/s"}) for name in "abc"}
    three["b"]["features"] = {"huge pages": "512"}

    assert sentences(differences(three)) == [
        "b differs: speed of eth1 none (others 100000 Mbit/s), huge pages 512 (others none)",
    ]


def test_nodes_of_different_kinds_are_not_compared() -> None:
    nodes = {"gpu": node(), "cpu": node(features={"driver": "none"}) | {"kind": "nodes without GPUs"}}

    assert differences(nodes) == []


def test_one_node_and_no_node_are_reported_without_differences() -> None:
    assert text({"a": node(host_tuning=report())}).splitlines()[-1] == "The node is as asked."
    assert text({}).splitlines()[0] == "NODE  IN ALL"


def test_the_table_has_the_roles_in_the_playbook_s_order_and_a_dash_for_what_did_not_run() -> None:
    nodes = {
        "long-name": node(rdma=report("skipped"), preflight=report(), host_tuning=report("waiting", "a restart")),
        "b": node("", None, preflight=report("failed", "no driver")),
    }

    assert text(nodes).splitlines()[:3] == [
        "NODE       preflight  host_tuning  rdma     IN ALL",
        "long-name  ok         waiting      skipped  waiting",
        "b          failed     -            -        broken off",
    ]


def test_a_node_of_which_nothing_is_known_is_in_the_report_as_such() -> None:
    report_ = compare({"a": node(host_tuning=report()), "gone": node(features={})}, ORDER)

    assert report_["nodes"]["gone"]["status"] == "unread"
    assert report_["unfit"] == ["gone"]
    assert "out of reach" in render(report_, "text")


def test_what_ended_a_node_s_run_is_told_in_its_own_words() -> None:
    found = compare({"a": node("sudo: a password is required", {})}, ORDER)["nodes"]["a"]

    assert (found["status"], found["why"]) == ("unread", "sudo: a password is required")


def test_a_node_whose_run_ended_early_says_before_which_roles() -> None:
    nodes = {"a": node(preflight=report()), "b": node(preflight=report(), host_tuning=report())}

    assert compare(nodes, ORDER)["nodes"]["a"]["why"] == "the run ended before host_tuning"


def test_a_node_whose_questions_a_role_has_ended_says_what_was_not_looked_at() -> None:
    found = compare({"a": node("the limit is too low.", preflight=report())}, ORDER)["nodes"]["a"]

    assert (found["status"], found["why"]) == (
        "failed",
        "the limit is too low. Not looked at after that: host_tuning, rdma.",
    )


def test_nodes_of_which_the_same_is_to_be_said_are_named_together() -> None:
    failed = report("failed", "not as asked", FINDING)
    lines = text({"a": node(rdma=failed), "b": node(rdma=report()), "c": node(rdma=failed)}).splitlines()

    assert lines[5:9] == [
        "a, c:",
        "  failed: rdma: not as asked",
        "  error: rdma: net.core.somaxconn is 128, not 4096",
        "    fix: run site.yml",
    ]


def test_what_the_findings_say_is_not_said_before_them_too() -> None:
    other = {"severity": "error", "what": "fs.file-max is 1", "fix": "run site.yml"}
    both = report("failed", f"{FINDING['what']} {other['what']}", FINDING, other)
    lines = text({"a": node(preflight=report("failed", "no disk"), host_tuning=both)}).splitlines()

    assert lines[3:6] == [
        "a:",
        "  failed: preflight: no disk; host_tuning",
        "  error: host_tuning: net.core.somaxconn is 128, not 4096",
    ]


def test_findings_carry_their_role_and_their_fix_the_worst_first() -> None:
    warning = {"severity": "warning", "what": "MTU is 1500", "fix": ""}
    lines = text({"a": node(host_tuning=report("failed", "not as asked", warning, FINDING))}).splitlines()

    assert lines[3:8] == [
        "a:",
        "  failed: host_tuning: not as asked",
        "  error: host_tuning: net.core.somaxconn is 128, not 4096",
        "    fix: run site.yml",
        "  warning: host_tuning: MTU is 1500",
    ]


def test_a_node_to_which_every_role_is_no_concern_is_as_asked() -> None:
    assert compare({"a": node(rdma=report("skipped", "no RDMA device"))}, ORDER)["unfit"] == []


def test_programs_get_the_same_as_json() -> None:
    nodes = many(node7={"driver": "575.57.08"})

    parsed = json.loads(render(compare(nodes, ORDER), "json"))

    assert parsed["differences"] == [
        {"kind": "GPU nodes", "feature": "driver", "usual": "580.95.05", "nodes": {"node7": "575.57.08"}}
    ]
    assert parsed["sentences"] == ["node7 differs: driver 575.57.08 (others 580.95.05)"]
    assert parsed["nodes"]["node7"]["roles"] == {"host_tuning": {"status": "ok", "why": ""}}


def test_another_form_is_refused_by_name() -> None:
    with pytest.raises(AnsibleFilterError, match="not 'yaml'"):
        render(compare({}, ORDER), "yaml")
