"""What the role preflight finds about GPUs, their driver and the training image's CUDA."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from scripts.image import base
from tests.roles.preflight_findings import DRIVER, ROLE, findings, found, machine
from tests.roles.templating import evaluate, load

# --- GPUs and driver: what the role nvidia_driver mends is a warning, else an error -----------------------


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("smt-off", "nouveau holds"),  # known failure 18
        ("epyc-nps4", "is loaded and 580.95.05 is installed"),  # known failure 13
        ("epyc-nps4", "6 NVSwitches"),  # known failure 17
    ],
)
def test_what_the_role_nvidia_driver_mends_stops_a_node_only_without_that_role(sample: str, words: str) -> None:
    assert found(machine(sample), words, **DRIVER) == ["warning"]
    assert found(machine(sample), words) == ["error"]


def test_the_role_nvidia_driver_takes_part_as_its_defaults_say_unless_the_inventory_says_otherwise() -> None:
    defaults = load(REPO / "roles/nvidia_driver/defaults/main.yml")

    plan = evaluate(ROLE, "__preflight_driver_plan", {"role_path": str(ROLE)})

    assert plan["source"] == defaults["nvidia_driver_source"] != "none"
    assert plan["branch"] == defaults["nvidia_driver_branch"]
    assert evaluate(ROLE, "__preflight_driver_plan", {"role_path": str(ROLE), **DRIVER})["branch"] == 580


def test_a_kernel_that_boots_next_without_headers_or_a_module_is_found() -> None:
    # Known failure 14.
    facts = machine("one-socket")
    kernel = facts["kernel"] | {"installed": ["6.8.0-90-generic", "6.8.0-87-generic"], "next": "6.8.0-90-generic"}

    assert found(facts | {"kernel": kernel}, "neither a driver module nor headers", **DRIVER) == ["warning"]
    kernel = kernel | {"headers": ["6.8.0-90-generic"]}
    assert found(facts | {"kernel": kernel}, "was not built for it", **DRIVER) == ["warning"]
    assert found(facts | {"kernel": kernel}, "will boot next and the driver was not built for it") == ["error"]
    assert found(facts | {"kernel": kernel | {"next": "6.8.0-87-generic"}}, "boot next") == []
    assert found(facts | {"kernel": kernel | {"next": None}}, "may boot next") == ["warning"]


@pytest.mark.parametrize(
    ("variables", "system", "severities"),
    [
        # Known failure 19.
        ({**DRIVER}, "debian", ["error"]),
        ({**DRIVER, "nvidia_driver_own_key_enrolled": True}, "debian", []),
        ({"nvidia_driver_source": "distro", "nvidia_driver_branch": 580}, "ubuntu", ["info"]),
        ({"nvidia_driver_source": "distro", "nvidia_driver_branch": 580}, "debian", ["error"]),
        ({}, "debian", ["error"]),
    ],
)
def test_secure_boot_stops_a_driver_whose_modules_nobody_signed(
    variables: dict[str, Any], system: str, severities: list[str]
) -> None:
    facts = machine("smt-off")
    facts["os"]["id"] = system

    assert found(facts, "secure boot", **variables) == severities


def test_secure_boot_is_no_matter_once_a_driver_is_loaded() -> None:
    assert found(machine("dgx-h100") | {"secure_boot": True}, "secure boot", **DRIVER) == []


def test_a_gpu_that_nvidia_smi_does_not_show_is_an_error() -> None:
    facts = machine("dgx-h100")
    facts["smi"]["gpus"] = facts["smi"]["gpus"][:7]

    assert found(facts, "0000:df:00.0, which is on the PCI bus", **DRIVER) == ["error"]


def test_a_driver_that_does_not_answer_is_an_error() -> None:
    facts = machine("dgx-h100") | {"smi": None, "smi_problem": "`nvidia-smi` did not answer within 20 s"}

    assert found(facts, "did not answer within 20 s", **DRIVER) == ["error"]


@pytest.mark.parametrize(
    ("sample", "asked", "words", "severities"),
    [
        ("dgx-h100", 8, "the PCI bus shows", []),
        ("dgx-h100", 0, "the PCI bus shows", []),
        ("dgx-h100", 9, "the PCI bus shows 8 of the 9 GPUs", ["error"]),
        ("no-gpu", "8", "the PCI bus shows 0 of the 8 GPUs", ["error"]),
        ("no-gpu", 0, "the PCI bus shows", []),
        ("dgx-h100", 4, "more than the 4 of preflight_gpus", ["warning"]),
    ],
)
def test_fewer_gpus_than_the_node_should_have_are_an_error_wherever_they_are_lost(
    sample: str, asked: int | str, words: str, severities: list[str]
) -> None:
    # PCI, driver, nvidia-smi and kubelet all agree on the number that is left.
    assert found(machine(sample), words, preflight_gpus=asked, **DRIVER) == severities


def test_a_gpu_that_is_passed_to_virtual_machines_is_an_error() -> None:
    facts = machine("one-socket")
    facts["gpus"][1]["driver"] = "vfio-pci"

    assert found(facts, "vfio-pci holds the GPU 0000:41:00.0", **DRIVER) == ["error"]


# --- CUDA: known failure 25 -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "branch", "passes"),
    [
        *[("13.0", 580, True), ("13.0", 575, False), ("12.6", 525, True), ("12.6", 520, False)],
        *[("11.8", 450, True), ("11.8", 440, False), ("12.6.3", 580, True)],
    ],
)
def test_the_branch_to_be_installed_has_to_run_the_image_s_cuda(cuda: str, branch: int, passes: bool) -> None:
    plan = {"nvidia_driver_source": "cuda_repo", "nvidia_driver_branch": branch}

    assert found(machine("smt-off"), "CUDA", preflight_cuda=cuda, **plan) == ([] if passes else ["error"])


def test_without_the_role_nvidia_driver_the_node_s_own_driver_counts() -> None:
    assert found(machine("vm"), "the node's driver is 550.163.01", preflight_cuda="13.0") == ["error"]
    assert found(machine("vm"), "the training image has CUDA") == []
    assert found(machine("smt-off"), "the node has no driver") == ["error"]


def test_forward_compatibility_is_said_where_the_gate_is_closed() -> None:
    fixes = [item["fix"] for item in findings(machine("vm"), preflight_cuda="13.0") if item["severity"] == "error"]

    assert any("cuda-compat" in fix and "data-centre GPUs only" in fix for fix in fixes)


def test_the_default_cuda_is_that_of_the_pinned_production_base() -> None:
    cuda = load(ROLE / "defaults/main.yml")["preflight_cuda"]

    assert f"-cuda{cuda}-" in base.production()
