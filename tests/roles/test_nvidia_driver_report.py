"""What nvidia_driver reports of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.roles.nvidia_driver_node import (
    EVERY_SYSTEM,
    KINDS,
    ROLE,
    installed,
    node,
    read,
    report,
    with_facts,
    with_node,
)
from tests.roles.templating import evaluate, load


def test_the_asked_part_of_the_report_is_the_same_on_every_node() -> None:
    assert report()["asked"] == report(**with_node(users=[{"pid": 7, "program": "python", "pod": False}]))["asked"]


def test_a_driver_managed_elsewhere_that_is_not_loaded_fails_with_a_finding() -> None:
    published = report(nvidia_driver_source="none")

    assert published["status"] == "failed"
    assert published["why"] == "no NVIDIA driver is loaded, and nvidia_driver_source is none"


def test_a_driver_managed_elsewhere_that_runs_is_right() -> None:
    driver = read("Debian-12")["machine_facts"]["driver"] | {"loaded": "580.95.05", "kind": "open"}

    published = report(nvidia_driver_source="none", **with_facts(driver=driver), **with_node(uvm=True))

    assert (published["status"], published["version"], published["findings"]) == ("ok", "580.95.05", [])


def test_a_driver_that_is_installed_and_runs_is_right() -> None:
    published = report(**installed())

    assert (published["status"], published["findings"]) == ("ok", [])
    assert (published["version"], published["modules"], published["reboot_required"]) == ("580.95.05", "open", False)


@pytest.mark.parametrize("loaded", ["575.57.08", ""], ids=["another one runs", "none runs"])
def test_a_driver_that_does_not_run_yet_waits_for_a_reboot_and_says_how_to_go_on(loaded: str) -> None:
    published = report(**installed(loaded=loaded))

    assert (published["status"], published["reboot_required"]) == ("waiting", True)
    assert "nvidia_driver_reboot_ok=true" in published["why"]


def test_no_reboot_is_waited_for_where_the_kernel_that_boots_next_has_no_module() -> None:
    node_read = installed()["__nvidia_driver_node"] | {"modules": {}}

    published = report(**installed(loaded="", __nvidia_driver_node=node_read))

    assert published["status"] == "failed"
    assert "which boots next, has no nvidia module" in published["why"]


def test_a_kernel_that_may_boot_next_without_a_module_is_worth_a_warning() -> None:
    scope = installed()
    # The newest one; nothing tells whether it or the one that runs boots next.
    scope["machine_facts"]["kernel"] |= {"installed": ["6.1.0-41-amd64", "6.1.0-40-amd64"], "next": None}

    published = report(**scope)

    assert published["status"] == "ok"
    (finding,) = published["findings"]
    assert finding["severity"] == "warning"
    assert "6.1.0-41-amd64, which may boot next, has no nvidia module" in finding["what"]


def test_an_upgrade_by_somebody_else_is_told() -> None:
    scope = node("Debian-12", **installed(version="580.105.08", loaded="580.95.05"))
    scope["__nvidia_driver_moved_from"] = "580.95.05"
    published = evaluate(ROLE, "__nvidia_driver_report", scope)

    assert published["status"] == "waiting"
    assert "moved from 580.95.05 to 580.105.08" in published["findings"][0]["what"]


def test_a_run_that_only_looks_reports_what_it_would_refuse_and_change() -> None:
    published = report(**with_facts(secure_boot=True, check_mode=True))

    assert published["status"] == "failed"
    said = " ".join(finding["what"] for finding in published["findings"])
    assert "Secure Boot is on" in said
    assert "the package nvidia-driver-cuda is not installed" in said
    assert "/etc/modprobe.d/rankzero-nvidia.conf" in said


def test_a_reboot_that_did_not_help_fails_instead_of_waiting_for_another() -> None:
    published = report(**installed(loaded="575.57.08"), __nvidia_driver_rebooted=True)

    assert published["status"] == "failed"
    assert "after the reboot the driver 580.95.05 is installed, and 575.57.08" in published["why"]


def test_what_somebody_else_held_is_not_recorded_as_the_role_s() -> None:
    scope = node("Debian-12", **installed())
    scope["__nvidia_driver_node"] |= {"record": {"held": ["nvidia-modprobe"]}}

    foreign = evaluate(ROLE, "__nvidia_driver_foreign_holds", scope)

    assert sorted(foreign) == ["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"]
    assert evaluate(ROLE, "__nvidia_driver_new_record", scope)["held"] == ["nvidia-modprobe"]


def test_an_initramfs_older_than_the_file_against_nouveau_is_not_as_asked_where_it_can_be_rebuilt() -> None:
    scope = node("Debian-12", **installed())
    scope["__nvidia_driver_node"] |= {"initramfs_older": ["initrd.img-6.1.0-40-amd64"], "programs": ["dracut"]}

    assert evaluate(ROLE, "__nvidia_driver_initramfs_stale", scope)
    scope["__nvidia_driver_node"] |= {"programs": []}
    assert not evaluate(ROLE, "__nvidia_driver_initramfs_stale", scope)


@EVERY_SYSTEM
def test_every_row_brings_the_program_that_makes_the_device_files(file: Path) -> None:
    for row in [row for rows in load(file)["__nvidia_driver_packages"].values() for row in rows]:
        for kind in KINDS:
            assert "nvidia-modprobe" in [*row[kind], *row["beside"][kind]]
