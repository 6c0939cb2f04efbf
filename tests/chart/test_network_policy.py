"""Who reaches the pods and whom they reach; tests/lab/test_network_policy.py has it enforced."""

from __future__ import annotations

from typing import Any

from rankzero import contract
from tests.chart.rendering import Manifest, minimal, only, render

GROUP = {"podSelector": {"matchLabels": {contract.LABEL_NAME: contract.APP_NAME, contract.LABEL_INSTANCE: "mnist"}}}
STATUS = {"ports": [{"protocol": "TCP", "port": contract.STATUS_PORT}]}


def policy(changes: dict[str, Any]) -> Manifest:
    """The policy's spec."""
    spec: Manifest = only(render(minimal(changes)), "NetworkPolicy")["spec"]
    return spec


def test_the_release_reaches_itself_on_every_port_and_others_reach_the_status_page_only() -> None:
    """Known failure A20: NCCL's ports are any, so a rule with ports would block training."""
    spec = policy({})
    assert spec["podSelector"] == GROUP["podSelector"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"from": [GROUP]}, STATUS]
    assert "egress" not in spec


def test_the_status_port_follows_the_values() -> None:
    assert policy({"launch.statusPort": 11001})["ingress"][1]["ports"][0]["port"] == 11001


def test_with_the_status_page_closed_nobody_else_comes_in() -> None:
    assert policy({"networkPolicy.statusFromAnywhere": False})["ingress"] == [{"from": [GROUP]}]


def test_restricted_egress_leaves_the_release_dns_and_what_the_values_name() -> None:
    own = {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}], "ports": [{"port": 6443}]}
    spec = policy({"networkPolicy.egress": {"restricted": True, "rules": [own]}})
    dns = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == [{"to": [GROUP]}, dns, own]


def test_no_policy_is_made_where_it_is_not_wanted_or_would_not_count() -> None:
    for changes in ({"networkPolicy.enabled": False}, {"network.hostNetwork": True}):
        assert "NetworkPolicy" not in {manifest["kind"] for manifest in render(minimal(changes))}
