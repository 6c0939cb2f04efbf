"""The role's data files and templates, for the systems that no test machine has as for those that one has."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from roles.nvidia_driver.filter_plugins import nvidia_driver
from tests.roles.nvidia_driver_node import DEBIAN, EVERY_SYSTEM, FILES, KINDS, ROLE, SYSTEMS, answer, files
from tests.roles.templating import load


def test_each_supported_system_finds_its_file() -> None:
    assert {nvidia_driver.os_file(system) for system in SYSTEMS.values()} == {file.stem for file in FILES}


@EVERY_SYSTEM
def test_every_file_has_the_same_keys(file: Path) -> None:
    data = load(file)

    assert sorted(data) == ["__nvidia_driver_key", "__nvidia_driver_packages", "__nvidia_driver_repository"]
    assert sorted(data["__nvidia_driver_packages"]) == ["cuda_repo", "distro"]
    for row in [row for rows in data["__nvidia_driver_packages"].values() for row in rows]:
        assert sorted(row) == ["beside", "fabric_manager", "from", "open", "proprietary", "signed", "stream"]
        assert sorted(row["beside"]) == sorted(row["stream"]) == sorted(KINDS)


@EVERY_SYSTEM
@pytest.mark.parametrize("branch", [535, 580, 620])
@pytest.mark.parametrize("kind", KINDS)
def test_names_are_filled_in_and_every_name_is_one_of_a_package(file: Path, branch: int, kind: str) -> None:
    for rows in load(file)["__nvidia_driver_packages"].values():
        names = nvidia_driver.package_names(rows, branch, kind, "generic")
        for name in [*names.get("driver", []), *names.get("beside", []), *names.get("fabric_manager", [])]:
            assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)


def test_ubuntu_s_names_lose_the_branch_with_590() -> None:
    rows = load(ROLE / "vars/os/Ubuntu-24.04.yml")["__nvidia_driver_packages"]["cuda_repo"]

    assert nvidia_driver.package_names(rows, 580, "open", "generic")["driver"] == ["nvidia-open-580"]
    assert nvidia_driver.package_names(rows, 590, "open", "generic")["driver"] == ["nvidia-open"]


def test_only_modules_that_the_distribution_signs_count_as_signed() -> None:
    signed = {
        (file.stem, source)
        for file in FILES
        for source, rows in load(file)["__nvidia_driver_packages"].items()
        for row in rows
        if row["signed"]
    }

    assert signed == {("Ubuntu-22.04", "distro"), ("Ubuntu-24.04", "distro")}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_repository_s_file_has_mirror_system_and_architecture_in_it(system: str) -> None:
    folder = load(ROLE / "vars/os" / f"{system}.yml")["__nvidia_driver_repository"]
    texts = files(system, nvidia_driver_repo_url="https://mirror.invalid/cuda/")
    text = texts["rankzero-nvidia.repo" if system == "RedHat-9" else "rankzero-nvidia.sources"]

    assert f"https://mirror.invalid/cuda/{folder}/x86_64/" in text


def test_dnf_checks_signatures_with_the_key_beside_the_index() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(files("RedHat-9", nvidia_driver_repo_url="https://mirror.invalid")["rankzero-nvidia.repo"])

    assert parser["rankzero-nvidia"]["gpgcheck"] == "1"
    assert parser["rankzero-nvidia"]["gpgkey"] == "https://mirror.invalid/rhel9/x86_64/D42D0685.pub"


def test_the_pin_is_for_one_version_of_all_packages_of_the_driver() -> None:
    text = files("Debian-12", __nvidia_driver_candidates=answer(*DEBIAN))["rankzero-nvidia"]
    pattern = re.search(r"^Pin: version /(.*)/$", text, re.MULTILINE)

    assert pattern
    assert re.search(pattern[1], "580.95.05-1")
    assert re.search(pattern[1], "1:580.95.05-0ubuntu1")
    assert not re.search(pattern[1], "580.95.050-1")
    assert not re.search(pattern[1], "1580.95.05-1")


def test_without_hold_the_pin_is_for_the_branch_and_nothing_keeps_upgrades_away() -> None:
    texts = files("Debian-12", nvidia_driver_hold=False, __nvidia_driver_candidates=answer(*DEBIAN))

    assert "52rankzero-nvidia" not in texts
    assert r"Pin: version /^([0-9]+:)?580\./" in texts["rankzero-nvidia"]
