"""The findings of nvidia_driver: what is wrong with kernel modules, a running driver and the role's files."""

from __future__ import annotations

from typing import Any

import pytest

from roles.nvidia_driver.filter_plugins import nvidia_driver_state

OPEN = {"version": "580.95.05", "license": "Dual MIT/GPL", "signer": ""}
MODULES = {"version": "580.95.05", "modules": "open", "beside": ["linux-headers-amd64"], "secure_boot": False}


def test_a_kernel_without_a_module_names_the_headers_to_install() -> None:
    (finding,) = nvidia_driver_state.module_findings({}, "6.1.0-40-amd64", MODULES)

    assert (
        finding["what"] == "kernel 6.1.0-40-amd64, which boots next, has no nvidia module, and 580.95.05 is installed"
    )
    assert "linux-headers-amd64" in finding["fix"]
    assert "dkms autoinstall -k 6.1.0-40-amd64" in finding["fix"]


@pytest.mark.parametrize(
    ("module", "asked", "what"),
    [
        (OPEN, {}, ""),
        (OPEN | {"version": "575.57.08"}, {}, "has the module 575.57.08"),
        (OPEN | {"license": "NVIDIA"}, {}, "has the proprietary modules"),
        (OPEN, {"modules": "proprietary"}, "has the open modules"),
        (OPEN, {"secure_boot": True}, "is not signed"),
        (OPEN | {"signer": "Canonical"}, {"secure_boot": True}, ""),
    ],
    ids=["right", "stale", "not open", "not proprietary", "unsigned", "signed"],
)
def test_the_module_that_boots_next_is_compared_with_what_is_asked(
    module: dict[str, str], asked: dict[str, Any], what: str
) -> None:
    found = nvidia_driver_state.module_findings({"k": module}, "k", MODULES | asked)

    assert [what in finding["what"] for finding in found] == ([True] if what else [])


def test_a_node_that_shows_no_kernel_is_not_judged_by_one() -> None:
    assert nvidia_driver_state.module_findings({}, "", MODULES) == []


def facts(**driver: Any) -> dict[str, Any]:
    """machine_facts of a node with two GPUs and an NVSwitch where all is well."""
    manager = {"state": "active", "version": "580.95.05"}
    return {
        "gpus": [{}, {}],
        "nvswitches": [{}],
        "smi": {"gpus": [{}, {}]},
        "driver": {"loaded": "580.95.05", "persistenced": "active", "fabricmanager": manager} | driver,
    }


NODE = {"uvm": True, "fabric": ["Completed", "Completed"], "persistence": ["Enabled", "Enabled"]}


def whats(found: list[dict[str, str]]) -> list[str]:
    """What the findings say."""
    return [finding["what"] for finding in found]


def test_a_driver_with_all_its_services_has_no_findings() -> None:
    assert nvidia_driver_state.runtime_findings(facts(), NODE, managed=True) == []


@pytest.mark.parametrize(
    ("changed", "node", "what"),
    [
        ({"smi": {"gpus": [{}]}}, {}, "nvidia-smi sees 1 GPUs, the PCI bus has 2"),
        ({"smi": None}, {}, "nvidia-smi does not answer"),
        ({}, {"uvm": False}, "/dev/nvidia-uvm is not there, so CUDA does not start"),
        ({}, {"fabric": ["In Progress", "Completed"]}, "GPUs are not part of the NVLink fabric: In Progress"),
    ],
    ids=["a GPU is missing", "no answer", "no device file", "not in the fabric"],
)
def test_what_the_running_driver_lacks_is_found(changed: dict[str, Any], node: dict[str, Any], what: str) -> None:
    assert whats(nvidia_driver_state.runtime_findings(facts() | changed, NODE | node, managed=True)) == [what]


@pytest.mark.parametrize(
    ("driver", "what"),
    [
        (
            {"fabricmanager": {"state": "absent", "version": None}},
            "nvidia-fabricmanager is absent; CUDA fails with error 802",
        ),
        (
            {"fabricmanager": {"state": "active", "version": "580.82.07"}},
            "of version 580.82.07, the driver of 580.95.05",
        ),
    ],
    ids=["no fabric manager", "fabric manager one patch off"],
)
def test_services_of_the_driver_are_proved(driver: dict[str, Any], what: str) -> None:
    (found,) = nvidia_driver_state.runtime_findings(facts(**driver), NODE, managed=True)

    assert what in found["what"]


@pytest.mark.parametrize(
    ("modes", "daemon", "found"),
    [(["Enabled"], "inactive", 0), (["Enabled", "Disabled"], "active", 1), ([], "active", 0), ([], "inactive", 1)],
    ids=["proved without the daemon", "the daemon alone proves nothing", "not told", "neither"],
)
def test_persistence_is_proved_by_the_gpus_where_they_tell_it(modes: list[str], daemon: str, found: int) -> None:
    node = NODE | {"persistence": modes}

    assert len(nvidia_driver_state.runtime_findings(facts(persistenced=daemon), node, managed=True)) == found


def test_a_driver_that_something_else_installs_may_be_without_programs_and_services_on_the_node() -> None:
    bare = facts(persistenced="absent", fabricmanager={"state": "absent", "version": None}) | {"smi": None}

    assert nvidia_driver_state.runtime_findings(bare, NODE, managed=False) == []


@pytest.mark.parametrize(
    ("driver", "node", "installed", "unusable"),
    [
        ({}, {}, "580.95.05", False),
        ({}, {}, "", False),
        ({}, {}, "580.99.01", True),
        ({"loaded": None}, {}, "", True),
        ({}, {"uvm": False}, "580.95.05", True),
    ],
    ids=["as it should be", "not of packages", "moved under the running one", "not loaded", "no device file"],
)
def test_a_node_whose_driver_does_not_run_is_unfit_whatever_was_asked_for(
    driver: dict[str, Any], node: dict[str, Any], installed: str, unusable: bool
) -> None:
    machine = facts(modules=["nvidia"], **driver) | {"gpus": [{"driver": "nvidia"}] * 2}

    assert nvidia_driver_state.unusable(machine, NODE | node, installed) is unusable


def test_files_that_are_missing_or_different_are_named() -> None:
    wanted = {"/same": "1", "/different": "1", "/absent": "1"}

    found = nvidia_driver_state.wrong_files(wanted, {"/same": "1", "/different": "2", "/absent": None})

    assert list(found) == ["/different", "/absent"]
