"""The role's data files and templates, for the systems that no test machine has as for those that one has."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest

from roles.nvidia_driver.filter_plugins import nvidia_driver
from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/nvidia_driver"
FILES = sorted((ROLE / "vars/os").glob("*.yml"))
KINDS = ("open", "proprietary")
EVERY_SYSTEM = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
SYSTEMS = {
    "Debian-12": {"id": "debian", "version": "12", "family": "Debian", "name": "Debian GNU/Linux 12 (bookworm)"},
    "Debian-13": {"id": "debian", "version": "13", "family": "Debian", "name": "Debian GNU/Linux 13 (trixie)"},
    "Ubuntu-22.04": {"id": "ubuntu", "version": "22.04", "family": "Debian", "name": "Ubuntu 22.04.5 LTS"},
    "Ubuntu-24.04": {"id": "ubuntu", "version": "24.04", "family": "Debian", "name": "Ubuntu 24.04.3 LTS"},
    "RedHat-9": {"id": "rocky", "version": "9.6", "family": "RedHat", "name": "Rocky Linux 9.6"},
}


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


def node(system: str, **changed: Any) -> dict[str, Any]:
    """Variables of a node of the system with one H100 on which the role has not run, as far as it has been read."""
    scope = {**read(system), **changed}
    scope["__nvidia_driver_wanted"] = evaluate(ROLE, "__nvidia_driver_plan", scope)
    scope["__nvidia_driver_state"] = evaluate(ROLE, "__nvidia_driver_comparison", scope)
    scope["__nvidia_driver_wrong"] = evaluate(ROLE, "__nvidia_driver_different", scope)
    return scope


def read(system: str) -> dict[str, Any]:
    """What the role finds on such a node."""
    paths = load(ROLE / "vars/main/names.yml")["__nvidia_driver_paths"]
    return {
        **load(ROLE / "vars/os" / f"{system}.yml"),
        "role_path": str(ROLE),
        "ansible_managed": "Ansible managed",
        "ansible_search_path": [str(ROLE)],
        "machine_facts": {
            "check_mode": False,
            "os": SYSTEMS[system],
            "kernel": {
                "release": "6.1.0-40-amd64",
                "arch": "x86_64",
                "installed": ["6.1.0-40-amd64"],
                "next": "6.1.0-40-amd64",
            },
            "gpus": [{"address": "0000:17:00.0", "device": "2330", "driver": None}],
            "nvswitches": [],
            "secure_boot": False,
            "driver": {
                "loaded": None,
                "kind": None,
                "modules": [],
                "persistenced": "absent",
                "fabricmanager": {"state": "absent", "version": None},
            },
            "smi": None,
        },
        "__nvidia_driver_node": {
            "record": {},
            "files": dict.fromkeys(paths.values()),
            "unwritable": [],
            "packages": {},
            "modules": {},
            "services": {},
            "users": [],
            "programs": [],
            "uvm": False,
            "fabric": [],
            "persistence": [],
            "initramfs_older": [],
        },
        "__nvidia_driver_moved_from": "",
        "machine_kubeconfig": "",
    }


def answer(*names: str, version: str = "580.95.05-1") -> dict[str, Any]:
    """What the repository is said to have."""
    return {"versions": {name: [version] for name in names}, "error": "", "key": "KEY"}


DEBIAN = [
    "nvidia-driver-cuda",
    "nvidia-kernel-open-dkms",
    "nvidia-persistenced",
    "nvidia-modprobe",
    "linux-headers-amd64",
]


def files(system: str, **changed: Any) -> dict[str, str]:
    """Texts of the role's files, by the last part of their paths."""
    texts = evaluate(ROLE, "__nvidia_driver_files", node(system, **changed))
    return {Path(path).name: text for path, text in texts.items()}


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


def refusals(system: str = "Debian-12", **changed: Any) -> list[str]:
    """Why the role would leave the node as it is."""
    refused: list[str] = evaluate(ROLE, "__nvidia_driver_refusals", node(system, **changed))
    return refused


def test_a_node_without_a_driver_and_a_complete_mirror_has_nothing_to_refuse() -> None:
    assert refusals(__nvidia_driver_candidates=answer(*DEBIAN)) == []


def with_facts(**changed: Any) -> dict[str, Any]:
    """machine_facts with some of them changed."""
    return {"machine_facts": read("Debian-12")["machine_facts"] | changed}


def with_node(**changed: Any) -> dict[str, Any]:
    """What was read of the driver with some of it changed."""
    return {"__nvidia_driver_node": read("Debian-12")["__nvidia_driver_node"] | changed}


OLDER = {"nvidia-driver-cuda": {"version": "575.57.08-1", "held": True}}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            with_facts(os={"id": "arch", "version": "", "family": "Debian", "name": "Arch Linux"}),
            ["Arch Linux is not a system", "nvidia_driver_source to none"],
        ),
        ({"nvidia_driver_version": "575.57.08"}, ["nvidia_driver_version is 575.57.08", "branch 580"]),
        (with_facts(secure_boot=True), ["Secure Boot is on", "mokutil", "nvidia_driver_own_key_enrolled"]),
        (with_node(packages=OLDER), ["nvidia_driver_branch 580", "575.57.08-1", "nvidia_driver_allow_branch_change"]),
        (with_node(users=[{"pid": 7, "program": "python", "pod": False}]), ["python (process 7)", "Drain the node"]),
        (with_node(unwritable=["/etc"]), ["/etc cannot be written to", "read-only"]),
        (
            {
                "nvidia_driver_source": "distro",
                **with_facts(nvswitches=[{"address": "0000:01:00.0", "device": "22A3"}]),
            },
            ["has no fabric manager", "nvidia_driver_source to cuda_repo"],
        ),
        (
            with_facts(kernel={"release": "6.18.1", "arch": "x86_64", "installed": [], "next": None}),
            ["6.18.1 has no flavour", "nvidia_driver_kernel_flavor"],
        ),
    ],
    ids=[
        *(
            "unknown system",
            "version of another branch",
            "secure boot",
            "another branch",
            "GPU in use",
            "read-only /etc",
        ),
        *("no fabric manager", "no flavour"),
    ],
)
def test_what_would_harm_the_node_is_refused_with_variable_value_and_way_out(
    changed: dict[str, Any], words: list[str]
) -> None:
    (refusal,) = refusals(**changed)

    assert [word for word in words if word not in refusal] == []


def test_rocky_has_no_driver_of_its_own() -> None:
    (refusal,) = refusals("RedHat-9", nvidia_driver_source="distro")

    assert "Rocky Linux 9.6 has no NVIDIA driver of its own" in refusal


def test_a_package_that_no_repository_has_is_refused_by_its_name() -> None:
    available = answer(*DEBIAN)
    available["versions"]["nvidia-modprobe"] = []

    (refusal,) = refusals(__nvidia_driver_candidates=available)

    assert "no repository of this node has the package nvidia-modprobe" in refusal


def test_all_reasons_are_given_at_once() -> None:
    assert len(refusals(**with_facts(secure_boot=True), **with_node(unwritable=["/etc"]))) == 2


def test_secure_boot_is_no_reason_where_the_modules_come_signed() -> None:
    facts = read("Ubuntu-24.04")["machine_facts"] | {"secure_boot": True}

    assert refusals("Ubuntu-24.04", nvidia_driver_source="distro", machine_facts=facts) == []


def report(**changed: Any) -> dict[str, Any]:
    """What the role publishes."""
    published: dict[str, Any] = evaluate(ROLE, "__nvidia_driver_report", node("Debian-12", **changed))
    return published


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


def installed(version: str = "580.95.05", loaded: str = "580.95.05", **changed: Any) -> dict[str, Any]:
    """A node on which the role has installed one version, and on which one runs."""
    names = ["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "nvidia-modprobe"]
    packages = {name: {"version": f"{version}-1", "held": True} for name in names}
    packages["linux-headers-amd64"] = {"version": "6.1", "held": False}
    module = {"version": version, "license": "Dual MIT/GPL", "signer": ""}
    driver = {
        "loaded": loaded or None,
        "kind": "open",
        "modules": ["nvidia"],
        "persistenced": "active",
        "fabricmanager": {"state": "absent", "version": None},
    }
    return {
        **with_facts(driver=driver, smi={"gpus": [{}]}),
        **with_node(packages=packages, modules={"6.1.0-40-amd64": module}, uvm=True),
        **changed,
    }


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


WITH_LEAVE = {"nvidia_driver_allow_branch_change": True, "nvidia_driver_own_key_enrolled": True}


@pytest.mark.parametrize("no", [False, "false", "no", "0"])
def test_leave_that_is_denied_in_any_spelling_is_denied(no: Any) -> None:
    denied = dict.fromkeys(WITH_LEAVE, no)

    assert len(refusals(**denied, **with_node(packages=OLDER), **with_facts(secure_boot=True))) == 2
    assert not evaluate(ROLE, "__nvidia_driver_arguments", node("Debian-12", nvidia_driver_reboot_ok=no))["reboot_ok"]
    assert "52rankzero-nvidia" not in files("Debian-12", nvidia_driver_hold=no)


@pytest.mark.parametrize("yes", [True, "true", "yes", "1"])
def test_leave_that_is_given_in_any_spelling_is_given(yes: Any) -> None:
    given = dict.fromkeys(WITH_LEAVE, yes)

    assert refusals(**given, **with_node(packages=OLDER), **with_facts(secure_boot=True)) == []
    assert "52rankzero-nvidia" in files("Debian-12", nvidia_driver_hold=yes)


def value(expression: str, **changed: Any) -> Any:
    """One of the role's variables."""
    return evaluate(ROLE, expression, node("Debian-12", **changed))


def test_packages_under_a_driver_that_is_loaded_change_only_with_leave() -> None:
    asked = installed() | {"nvidia_driver_version": "580.105.08"}

    assert not value("__nvidia_driver_permitted", **asked)
    assert value("__nvidia_driver_permitted", **asked, nvidia_driver_reboot_ok="true")
    assert value("__nvidia_driver_permitted", **installed(loaded="") | {"nvidia_driver_version": "580.105.08"})
    published = report(**asked)
    assert published["status"] == "waiting"
    assert "upgrade_driver.yml" in published["why"]


@pytest.mark.parametrize(
    ("pod", "refused"), [(True, 0), (False, 1)], ids=["pods are drained", "nothing moves the others"]
)
def test_no_reboot_takes_a_process_outside_of_pods_by_surprise(pod: bool, refused: int) -> None:
    user = {"pid": 7, "program": "python", "pod": pod}
    scope = node("Debian-12", **installed(loaded="575.57.08", nvidia_driver_reboot_ok=True))
    scope["__nvidia_driver_node"] |= {"users": [user]}
    scope["__nvidia_driver_wrong"] = {}
    scope["__nvidia_driver_as_asked"] = True

    assert len(evaluate(ROLE, "__nvidia_driver_refusals", scope)) == refused


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


def test_a_password_in_a_url_is_refused_before_it_is_written_where_all_can_read_it() -> None:
    (refusal,) = refusals(nvidia_driver_repo_url="https://user:secret@mirror.invalid/cuda")

    assert "secret" not in refusal
    assert "auth.conf.d" in refusal


@EVERY_SYSTEM
def test_every_row_brings_the_program_that_makes_the_device_files(file: Path) -> None:
    for row in [row for rows in load(file)["__nvidia_driver_packages"].values() for row in rows]:
        for kind in KINDS:
            assert "nvidia-modprobe" in [*row[kind], *row["beside"][kind]]
