"""The filters of nvidia_driver: what follows from PCI ids, versions and package lists, and what is wrong with them."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from roles.nvidia_driver.filter_plugins import nvidia_driver, nvidia_driver_state
from scripts.cache import REPO
from tests.roles.templating import load

PCI = load(REPO / "roles/nvidia_driver/vars/main/pci.yml")["__nvidia_driver_pci"]
RANGES, EXCEPTIONS, TABLE = PCI["ranges"], PCI["exceptions"], PCI["architectures"]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("13F2", "Maxwell"),  # Tesla M60
        ("15F8", "Pascal"),  # Tesla P100 PCIe 16GB
        ("1B38", "Pascal"),  # Tesla P40
        ("1DB4", "Volta"),  # Tesla V100 PCIe 16GB
        ("1DB6", "Volta"),  # Tesla V100 PCIe 32GB
        ("1EB8", "Turing"),  # Tesla T4
        ("2182", "Turing"),  # GeForce GTX 1660 Ti
        ("20B0", "Ampere"),  # A100 SXM4 40GB
        ("20B2", "Ampere"),  # A100 SXM4 80GB
        ("20F3", "Ampere"),  # A800-SXM4-80GB
        ("2236", "Ampere"),  # A10
        ("2330", "Hopper"),  # H100 SXM5 80GB
        ("2331", "Hopper"),  # H100 PCIe
        ("2335", "Hopper"),  # H200 SXM 141GB
        ("2339", "Hopper"),  # H100 SXM5 94GB
        ("2342", "Grace Hopper"),  # GH200 120GB / 480GB
        ("26B9", "Ada"),  # L40S
        ("27B8", "Ada"),  # L4
        ("2901", "Blackwell"),  # B200
        ("2941", "Blackwell"),  # HGX GB200
        ("0FF0", "older"),  # Kepler
        ("3500", "newer"),
    ],
)
def test_the_architecture_is_told_by_the_pci_id_in_either_case(device: str, name: str) -> None:
    assert nvidia_driver.architecture(device, RANGES, EXCEPTIONS) == name
    assert nvidia_driver.architecture(device.lower(), RANGES, EXCEPTIONS) == name


def test_ranges_do_not_overlap_and_every_architecture_has_its_needs() -> None:
    spans = [(int(item["first"], 16), int(item["last"], 16)) for item in RANGES]

    assert spans == sorted(spans)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    assert {item["architecture"] for item in RANGES} | {*EXCEPTIONS.values(), "newer"} == set(TABLE)


def choice(*names: str, modules: str = "auto", branch: int = 580) -> dict[str, Any]:
    """The role's choice for a node with one GPU of each of the architectures."""
    asked = {**PCI, "modules": modules, "branch": branch}
    found = {name: [f"0000:{index:02x}:00.0"] for index, name in enumerate(names, start=1)}
    return nvidia_driver.module_choice(found, asked, TABLE)


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        (["Turing"], "open"),
        (["Hopper"], "open"),
        (["Grace Hopper"], "open"),
        (["Blackwell"], "open"),
        (["newer"], "open"),
        (["Volta"], "proprietary"),
        (["Pascal", "Ampere"], "proprietary"),
        (["Ampere", "Blackwell"], "open"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else value,
)
def test_the_open_modules_are_taken_wherever_all_gpus_allow_it(names: list[str], modules: str) -> None:
    assert choice(*names) == {"modules": modules, "refusals": []}


def test_gpus_that_no_one_kind_of_modules_drives_are_refused_with_their_addresses() -> None:
    refused = choice("Volta", "Blackwell")

    assert refused["modules"] == ""
    assert refused["refusals"] == [
        "no one kind of kernel modules drives all GPUs of the node (Volta at 0000:01:00.0: proprietary; "
        "Blackwell at 0000:02:00.0: open). Take one kind of GPU out."
    ]


@pytest.mark.parametrize(
    ("names", "asked", "sentence"),
    [
        (["Blackwell"], {"modules": "proprietary"}, "nvidia_driver_modules is proprietary.*with open modules"),
        (["Volta"], {"modules": "open"}, "nvidia_driver_modules is open.*with proprietary modules"),
        (["Volta"], {"branch": 590}, "nvidia_driver_branch is 590.*Volta.*up to 580"),
        (["Blackwell"], {"branch": 535}, "nvidia_driver_branch is 535.*Blackwell.*from 570 on"),
        (["Ampere"], {"branch": 620, "modules": "proprietary"}, "branch 620.*with open modules"),
        (["Ampere"], {"branch": 470, "modules": "open"}, "branch 470.*with proprietary modules"),
        (["older"], {}, "older than every architecture.*nvidia_driver_source to none"),
    ],
    ids=["Blackwell is open", "Volta is not", "590 left Volta behind", "535 knew no Blackwell", "620", "470", "Kepler"],
)
def test_what_cannot_drive_the_gpus_is_refused_with_what_can(
    names: list[str], asked: dict[str, Any], sentence: str
) -> None:
    refused = choice(*names, **asked)

    assert refused["modules"] == ""
    assert len(refused["refusals"]) == 1
    assert re.search(sentence, refused["refusals"][0])


@pytest.mark.parametrize(
    ("package", "version", "branch"),
    [
        ("580.95.05-1", "580.95.05", 580),
        ("580.95.05-0ubuntu0.24.04.1", "580.95.05", 580),
        ("3:580.95.05-1.el9", "580.95.05", 580),
        ("535.247.01-1~deb12u1", "535.247.01", 535),
        ("20220217+3~deb12u1", "", 20220217),
        ("", "", 0),
    ],
)
def test_nvidia_s_version_is_found_in_that_of_a_package(package: str, version: str, branch: int) -> None:
    assert (nvidia_driver.upstream(package), nvidia_driver.branch(package)) == (version, branch)


@pytest.mark.parametrize(
    ("release", "flavor"),
    [
        ("6.1.0-40-amd64", "amd64"),
        ("6.1.0-40-cloud-amd64", "cloud-amd64"),
        ("6.12.41+deb13-amd64", "amd64"),
        ("6.8.0-45-generic", "generic"),
        ("6.8.0-1015-aws", "aws"),
        ("6.8.0-1013-nvidia-64k", "nvidia-64k"),
        ("5.14.0-570.12.1.el9_6.x86_64", ""),
    ],
)
def test_the_kernel_s_flavour_is_the_end_of_its_release(release: str, flavor: str) -> None:
    assert nvidia_driver.flavor(release) == flavor


VERSIONS = {
    "driver": ["590.48.01-1", "580.105.08-1", "580.95.05-1", "575.57.08-1"],
    "library": ["590.48.01-1", "580.105.08-1", "580.95.05-1"],
    "manager": ["580.95.05-1"],
    "manager-580": [],
}


def chosen(driver: list[str], fabric: tuple[str, ...] = (), exact: str = "", installed: tuple[str, ...] = ()) -> Any:
    """The role's choice for branch 580 among :data:`VERSIONS`."""
    wanted = {"driver": driver, "fabric_manager": list(fabric), "branch": 580}
    return nvidia_driver.choose(VERSIONS, wanted, installed, exact)


def test_the_newest_version_of_the_branch_that_all_packages_have_is_chosen() -> None:
    assert chosen(["driver", "library"]) == {
        "version": "580.105.08",
        "packages": {"driver": "580.105.08-1", "library": "580.105.08-1"},
        "offered": {},
    }


def test_a_fabric_manager_that_lags_behind_holds_the_driver_back_under_either_of_its_names() -> None:
    assert chosen(["driver"], ("manager-580", "manager"))["packages"] == {
        "driver": "580.95.05-1",
        "manager": "580.95.05-1",
    }


def test_packages_of_the_driver_that_are_there_already_come_along_where_the_version_has_them() -> None:
    assert list(chosen(["driver"], installed=("library", "manager"))["packages"]) == ["driver", "library"]


def test_105_is_newer_than_95() -> None:
    assert chosen(["driver"])["version"] == "580.105.08"


def test_an_exact_version_is_taken_or_nothing() -> None:
    assert chosen(["driver"], exact="580.95.05")["version"] == "580.95.05"
    assert chosen(["driver"], exact="580.1.1") == {
        "version": "",
        "packages": {},
        "offered": {"driver": ["580.105.08", "580.95.05"]},
    }


def test_without_packages_nothing_is_chosen() -> None:
    assert chosen([])["version"] == ""


def package(version: str, *, held: bool = True) -> dict[str, Any]:
    """An installed package."""
    return {"version": version, "held": held}


def test_a_driver_s_packages_are_told_by_their_versions() -> None:
    found = nvidia_driver.installed_driver(
        {
            "libcuda1": package("580.95.05-1"),
            "nvidia-container-toolkit": package("1.18.0-1"),
            "nvidia-support": package("20220217+3"),
            "linux-modules-nvidia-580-server-open-generic": package("580.1-1"),
        }
    )

    assert list(found) == ["libcuda1"]


def differences(found: dict[str, Any], driver: list[str], fabric: tuple[str, ...] = (), exact: str = "") -> list[str]:
    """What of the installed packages is not as asked for branch 580."""
    wanted = {"branch": 580, "driver": driver, "fabric_manager": list(fabric), "beside": ["nvlsm"]}
    return nvidia_driver_state.package_findings(nvidia_driver.installed_driver(found), wanted, exact)


def test_packages_of_one_version_of_the_branch_are_as_asked_whichever_version_that_is() -> None:
    found = {"driver": package("580.1.1-1"), "fm": package("580.1.1-1"), "nvidia-modprobe": package("570.1.1-1")}

    assert differences(found, ["driver"], ("fm-580", "fm")) == []


def test_each_difference_of_the_packages_is_one_sentence() -> None:
    found = {"driver": package("580.1.1-1"), "library": package("580.2.2-1"), "libnvidia-old": package("575.1.1-1")}

    assert differences(found, ["driver", "absent"], ("fm",)) == [
        "the package absent is not installed",
        "the package fm is not installed, and the node has NVSwitches",
        "libnvidia-old is installed in version 575.1.1-1, not of branch 580",
        "the driver's packages have different versions: 580.1.1, 580.2.2",
    ]


def test_another_version_than_the_exact_one_is_a_difference() -> None:
    assert differences({"driver": package("580.1.1-1")}, ["driver"], exact="580.2.2") == [
        "driver is installed in version 580.1.1-1, not 580.2.2"
    ]


def test_of_the_fabric_manager_s_names_one_that_is_there_is_enough() -> None:
    versions = {"a": ["1"], "fm": ["1"]}

    assert nvidia_driver.unavailable(versions, ["a"], ["fm-580", "fm"]) == []
    assert nvidia_driver.unavailable(versions, ["a", "b"], ["fm-580"]) == ["b", "fm-580"]
