"""A node as nvidia_driver reads it, and what the role's variables come to on it, by Ansible's own templating."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def with_facts(**changed: Any) -> dict[str, Any]:
    """machine_facts with some of them changed."""
    return {"machine_facts": read("Debian-12")["machine_facts"] | changed}


def with_node(**changed: Any) -> dict[str, Any]:
    """What was read of the driver with some of it changed."""
    return {"__nvidia_driver_node": read("Debian-12")["__nvidia_driver_node"] | changed}


def report(**changed: Any) -> dict[str, Any]:
    """What the role publishes."""
    published: dict[str, Any] = evaluate(ROLE, "__nvidia_driver_report", node("Debian-12", **changed))
    return published


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
