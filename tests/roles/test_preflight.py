"""What the role preflight finds on the sample machines, and on the same machines with one thing wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from roles.machine.module_utils.machine import system
from roles.preflight.filter_plugins import preflight
from roles.preflight.filter_plugins.preflight_network import interfaces_told
from roles.preflight.filter_plugins.preflight_system import system_findings
from tests.roles.preflight_findings import DRIVER, ROLE, TABLES, findings, found, machine
from tests.roles.templating import evaluate


@pytest.mark.parametrize("sample", ["dgx-h100", "one-socket", "grace"])
def test_machines_that_are_as_asked_give_no_error_and_no_warning(sample: str) -> None:
    severities = {finding["severity"] for finding in findings(machine(sample), **DRIVER)}

    assert severities <= {"info"}


def test_the_gravest_comes_first_and_each_has_a_fix() -> None:
    result = preflight.report(findings(machine("epyc-nps4")))["findings"]

    assert [item["severity"] for item in result] == sorted(
        (item["severity"] for item in result), key=preflight.SEVERITIES.index
    )
    assert all(item["fix"] and item["what"] for item in result)


def test_a_node_without_a_gpu_passes_and_what_was_skipped_is_said() -> None:
    facts = machine("no-gpu")

    assert found(facts, "no NVIDIA GPU", **DRIVER) == ["info"]
    assert "error" not in {finding["severity"] for finding in findings(facts, **DRIVER)}


# --- System ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "version", "supported"),
    [
        *[("ubuntu", "22.04", True), ("ubuntu", "24.04", True), ("debian", "13", True), ("rocky", "9.6", True)],
        *[("ubuntu", "20.04", False), ("debian", "11", False), ("rocky", "90", False), ("rhel", "8.10", False)],
        *[("", "", False), ("arch", "", False)],
    ],
)
def test_systems_are_supported_by_id_and_version(system: str, version: str, supported: bool) -> None:
    facts = machine("vm") | {"os": {"id": system, "version": version, "name": "It"}}

    assert (found(facts, "which the roles do not know") == []) is supported


def test_a_kernel_older_than_any_supported_system_s_is_an_error() -> None:
    facts = machine("vm")

    assert found(facts | {"kernel": facts["kernel"] | {"release": "5.4.0-200-generic"}}, "older than") == ["error"]


@pytest.mark.parametrize(
    ("version", "told", "severity"),
    [
        # Known failure 28.
        *[("v1.35.0", None, "error"), ("v1.37.2", True, "error"), ("v1.37.2", False, "warning")],
        *[("v1.34.9", None, "warning"), (None, None, "warning")],
    ],
)
def test_cgroup_v1_is_held_against_the_kubelet_s_version(version: str | None, told: bool | None, severity: str) -> None:
    facts = machine("no-gpu")
    kubernetes = facts["kubernetes"] | {"version": version, "fail_cgroup_v1": told}

    assert found(facts | {"kubernetes": kubernetes}, "cgroup v1") == [severity]


def test_cgroup_v1_does_not_matter_without_a_kubelet() -> None:
    facts = machine("no-gpu")

    assert found(facts | {"kubernetes": facts["kubernetes"] | {"distribution": "none"}}, "cgroup v1") == []


@pytest.mark.parametrize(
    ("free_mib", "severities"),
    [(29 * 1024, ["error"]), (31 * 1024, ["warning"]), (200 * 1024, []), (0, ["error"])],
)
def test_little_free_space_is_an_error_and_a_small_share_a_warning(free_mib: int, severities: list[str]) -> None:
    disk = {"path": "/var/lib/containerd", "free_mib": free_mib, "total_mib": 1000 * 1024}

    assert found(machine("one-socket") | {"disks": [disk]}, "/var/lib/containerd", **DRIVER) == severities


@pytest.mark.parametrize(("state", "severities"), [(True, []), (False, ["warning"]), (None, ["info"])])
def test_a_clock_that_nobody_keeps_is_told(state: bool | None, severities: list[str]) -> None:
    assert found(machine("vm") | {"clock_synchronized": state}, "the clock") == severities


# --- Network and ports ------------------------------------------------------------------------------------


def test_a_rail_with_another_mtu_is_found_among_those_like_it() -> None:
    assert found(machine("epyc-nps4"), "rail5 has MTU 1500, and 7 of the 8 interfaces", **DRIVER) == ["warning"]


def test_a_link_that_came_up_slower_than_its_siblings_is_found() -> None:
    facts = machine("dgx-h100")
    next(nic for nic in facts["nics"] if nic["name"] == "ibp94s0")["speed_mbit"] = 100000

    assert found(facts, "ibp94s0 has a speed of 100000 Mbit/s", **DRIVER) == ["warning"]


def test_ports_of_a_bond_are_compared_even_if_they_are_two() -> None:
    facts = machine("smt-off")
    next(nic for nic in facts["nics"] if nic["name"] == "ens1f1")["speed_mbit"] = 10000

    assert len(found(facts, "ens1f", **DRIVER)) == 1


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"preflight_interfaces": ["eth9"]}, "no interface eth9"),
        ({"preflight_interfaces": "ens3f0, eth9,eth8"}, "no interface eth9, eth8 "),
        ({"preflight_interfaces": ["ens3f1"]}, "has no link"),
        ({"preflight_link_mbit": 100000}, "ens3f0 runs at 25000 Mbit/s, less than 100000"),
    ],
)
def test_interfaces_that_cannot_carry_training_are_errors(variables: dict[str, Any], words: str) -> None:
    assert found(machine("one-socket"), words, **DRIVER, **variables) == ["error"]


def test_an_interface_that_tells_no_speed_is_not_called_slow() -> None:
    assert found(machine("vm"), "does not tell its speed", preflight_link_mbit=10000) == ["info"]


@pytest.mark.parametrize(
    ("ephemeral", "reserved", "severities"),
    [
        ([32768, 60999], "", []),
        ([1024, 65535], "", ["warning"]),
        ([1024, 65535], "20000-29499,29500-29510,30000-32767", []),
        ([1024, 65535], "20000-29509", ["warning"]),
        ([29505, 60999], "29505-32767", []),
        ([], "", []),
    ],
)
def test_ports_of_training_are_not_given_to_outgoing_connections(
    ephemeral: list[int], reserved: str, severities: list[str]
) -> None:
    facts = machine("vm") | {"ports": {"ephemeral": ephemeral, "reserved": reserved, "listening": []}}

    assert found(facts, "outgoing connections") == severities


def test_the_ports_are_those_of_the_contract() -> None:
    stores, others, _ = TABLES["__preflight_ports"].values()

    assert stores == [contract.FIRST_STORE_PORT, contract.LAST_STORE_PORT]
    assert others == TABLES["__preflight_fixed_ports"] == [contract.RENDEZVOUS_PORT, contract.STATUS_PORT]


def test_a_port_that_something_listens_on_is_told() -> None:
    facts = machine("vm")
    facts["ports"]["listening"] = [22, 29500]

    assert found(facts, "listens on 29500,") == ["info"]


def test_the_interfaces_that_lead_out_of_the_node_are_in_the_report() -> None:
    told = interfaces_told(machine("smt-off"))

    assert [nic["name"] for nic in told] == ["bond0", "bond0.40", "ens1f0", "ens1f1"]
    assert [nic["name"] for nic in interfaces_told(machine("no-gpu"))] == ["eth0"]
    assert told[0] == {"name": "bond0", "mtu": 9000, "speed_mbit": 200000, "up": True}


# --- Arguments and report ---------------------------------------------------------------------------------


def test_the_first_error_is_why_a_node_fails_and_warnings_are_no_reason() -> None:
    warning, error = ({"severity": severity, "what": severity, "fix": "-"} for severity in ("warning", "error"))

    assert preflight.report([warning, error]) == {"status": "failed", "why": "error", "findings": [error, warning]}
    assert preflight.report([warning])["status"] == "ok"
    assert preflight.report([]) == {"status": "ok", "why": "", "findings": []}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"preflight_cuda": "twelve"}, "preflight_cuda is twelve, which is no version"),
        ({"preflight_cuda": "12"}, "Give two numbers with a dot"),
        ({"preflight_cuda": "14.1"}, "known only for 11.x, 12.x, 13.x"),
        ({"preflight_gpus": -1}, "preflight_gpus is -1; a node has 0 GPUs or more"),
        ({"preflight_disk_gib": -1}, "preflight_disk_gib is -1"),
        ({"preflight_link_mbit": -1}, "a speed is 0 Mbit/s or more"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(variables: dict[str, Any], words: str) -> None:
    refusals = evaluate(ROLE, "__preflight_refusals", variables)

    assert len(refusals) == 1
    assert words in refusals[0]


def test_the_defaults_are_refused_nowhere() -> None:
    assert evaluate(ROLE, "__preflight_refusals", {}) == []


def test_every_folder_that_is_measured_has_a_threshold() -> None:
    facts = machine("vm")
    disks = evaluate(ROLE, "__preflight_disks", {"machine_facts": facts})
    measured = [disk | {"free_mib": 0} for disk in system.disks(Path("/"), facts["runtime"]["root"])]

    result = system_findings(facts | {"disks": measured}, TABLES["__preflight_systems"], disks)

    assert [item["severity"] for item in result] == ["error"] * len(measured)
    assert disks["/var/lib/rancher/k3s/agent/containerd"]["argument"] == "preflight_image_disk_gib"


def test_the_text_has_severity_sentence_and_fix() -> None:
    assert preflight.text([{"severity": "error", "what": "it is so.", "fix": "Do it."}]) == [
        "error: it is so. -> Do it."
    ]
