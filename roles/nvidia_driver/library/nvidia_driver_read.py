#!/usr/bin/python
"""Ansible module of the role nvidia_driver: what the node has of the driver, and the texts of the role's files."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine import files, programs
from ansible.module_utils.machine.records import read_record, read_text
from ansible.module_utils.machine.writing import unwritable

DOCUMENTATION = r"""
module: nvidia_driver_read
short_description: Read what the role nvidia_driver decides on
description:
  - Reads the role's record and files, the installed packages, the kernel modules by kernel, the services and who uses
    the GPUs. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  files:
    description: Paths of the files whose text is wanted.
    type: list
    elements: str
    required: true
  folders:
    description: Folders that the role writes to.
    type: list
    elements: str
    required: true
  package_globs:
    description: Shell patterns for the names of packages.
    type: list
    elements: str
    required: true
  kernels:
    description: Kernel releases whose modules are looked at.
    type: list
    elements: str
    required: true
  services:
    description: Names of systemd services, without C(.service).
    type: list
    elements: str
    required: true
  bystanders:
    description: Names of programs that hold GPU devices without computing on them.
    type: list
    elements: str
    required: true
  programs:
    description: Names of programs to look for.
    type: list
    elements: str
    required: true
  newer_than_initramfs:
    description: Path of a file that every initramfs is to be newer than.
    type: path
    required: true
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
files:
  description: Text by path, null where no file is.
  returned: always
  type: dict
unwritable:
  description: Those of O(folders) that cannot be written to, such as on a file system that is read-only.
  returned: always
  type: list
packages:
  description: Version and whether it is held of each installed package that matches.
  returned: always
  type: dict
modules:
  description: Version, licence and signer of the module C(nvidia) for each kernel that has one.
  returned: always
  type: dict
services:
  description: C(active) and C(enabled) of each service that systemd knows.
  returned: always
  type: dict
users:
  description: >-
    Process id, program and whether it is in a pod of each process with a GPU device open, without O(bystanders).
  returned: always
  type: list
programs:
  description: Those of O(programs) that are there.
  returned: always
  type: list
uvm:
  description: Whether the device file of nvidia-uvm is there, without which CUDA does not start.
  returned: always
  type: bool
fabric:
  description: State of the NVLink fabric by GPU, as nvidia-smi tells it; empty where it tells none.
  returned: always
  type: list
persistence:
  description: Persistence mode by GPU, as nvidia-smi tells it; empty where it tells none.
  returned: always
  type: list
initramfs_older:
  description: Names of initramfs images that are older than O(newer_than_initramfs).
  returned: always
  type: list
"""

DPKG_FORMAT = "${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"
RPM_FORMAT = "%{NAME}\t%{VERSION}-%{RELEASE}\n"
VERSION_LOCK = Path("/etc/dnf/plugins/versionlock.list")
STARTED = ("enabled", "enabled-runtime", "static", "indirect", "alias", "generated")
"""States of unit files that systemctl has nothing to enable in; Ubuntu starts nvidia-persistenced from udev."""
BOOT = Path("/boot")
SMI_SECONDS = 20
"""nvidia-smi hangs on a GPU that fell off the bus, and cannot be killed then."""


def parse_dpkg(output: str) -> dict[str, dict[str, Any]]:
    """Installed packages from lines in :data:`DPKG_FORMAT`."""
    rows = (line.split("\t") for line in output.splitlines())
    return {
        name: {"version": version, "held": want == "hold"}
        for name, version, want, status in rows
        if status == "installed"
    }


def parse_rpm(output: str, locks: str) -> dict[str, dict[str, Any]]:
    """Installed packages from lines in :data:`RPM_FORMAT`; ``locks`` is the list of dnf's versionlock plugin."""
    rows = (line.split("\t") for line in output.splitlines())
    locked = [line.strip() for line in locks.splitlines()]
    return {
        name: {"version": version, "held": any(line.startswith((f"{name}-0:", f"{name}-3:")) for line in locked)}
        for name, version in rows
    }


def parse_services(show: str) -> dict[str, dict[str, bool]]:
    """The blocks that ``systemctl show`` prints for several units, without those that are not there."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines()) for block in show.strip().split("\n\n") if block)
    return {
        block["Id"].removesuffix(".service"): {
            "active": block["ActiveState"] == "active",
            "enabled": block["UnitFileState"] in STARTED,
        }
        for block in blocks
        if block["LoadState"] == "loaded"
    }


def gpu_users(bystanders: Iterable[str], root: Path = Path("/proc")) -> list[dict[str, Any]]:
    """Processes with a GPU's device file open, but for programs that only watch."""
    users = []
    for process in sorted(root.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            program = (process / "comm").read_text(encoding="utf-8").strip()
            opened = {str(link.readlink()) for link in (process / "fd").iterdir()}
        except OSError:  # ended meanwhile
            continue
        if program not in bystanders and any(_is_gpu(target) for target in opened):
            users.append({"pid": int(process.name), "program": program, "pod": _in_pod(process)})
    return users


def _in_pod(process: Path) -> bool:
    return "kubepods" in files.text(process / "cgroup")


def older_initramfs(path: Path, boot: Path = BOOT) -> list[str]:
    """Names of the initramfs images in ``boot`` that were made before the file at ``path``."""
    if not path.exists():
        return []
    images = [image for pattern in ("initrd.img-*", "initramfs-*.img") for image in boot.glob(pattern)]
    changed = path.stat().st_mtime
    return sorted(image.name for image in images if "rescue" not in image.name and image.stat().st_mtime < changed)


def _is_gpu(target: str) -> bool:
    """Computing opens the file of a GPU, /dev/nvidia0 and so on, or that of nvidia-uvm."""
    return target == "/dev/nvidia-uvm" or target.removeprefix("/dev/nvidia").isdecimal()


class Node:
    """The programs of the node that answer."""

    def __init__(self, module: AnsibleModule) -> None:
        """``module`` runs the programs."""
        self.module = module

    def packages(self, globs: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Installed packages by name."""
        if shutil.which("dpkg-query"):
            # Status 1: some of the patterns match nothing.
            _, output, _ = self.module.run_command(["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}", *globs])
            return parse_dpkg(output)
        _, output, _ = self.module.run_command(["rpm", "--query", "--all", f"--queryformat={RPM_FORMAT}", *globs])
        return parse_rpm(output, read_text(VERSION_LOCK) or "")

    def modules(self, kernels: Sequence[str]) -> dict[str, dict[str, str]]:
        """What modinfo says of the module nvidia, by kernel."""
        found = {}
        for kernel in kernels:
            code, output, _ = self.module.run_command(["modinfo", "--set-version", kernel, "nvidia"])
            fields = dict(line.split(":", 1) for line in output.splitlines() if ":" in line)
            if code == 0:
                found[kernel] = {name: fields.get(name, "").strip() for name in ("version", "license", "signer")}
        return found

    def services(self, names: Sequence[str]) -> dict[str, dict[str, bool]]:
        """State of the services that are there."""
        show = ["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", "--"]
        _, output, _ = self.module.run_command([*show, *(f"{name}.service" for name in names)])
        return parse_services(output)


def ask_gpus(questions: Sequence[str], root: Path = Path("/"), limit: float = SMI_SECONDS) -> dict[str, list[str]]:
    """What nvidia-smi says of each GPU, by question. Older programs do not know every one, and a hanging one none."""
    if not (root / "proc/driver/nvidia/version").exists() or programs.hanging(root, "nvidia-smi", limit):
        return {what: [] for what in questions}
    asked = {what: ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"] for what in questions}
    answers = programs.run(asked, limit)
    return {
        what: [line.strip() for line in answers[what].output.splitlines()] if answers[what].status == 0 else []
        for what in questions
    }


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    given, node = module.params, Node(module)
    told = ask_gpus(["fabric.state", "persistence_mode"])
    return {
        "record": read_record(Path(given["record"]), files=list, held=list),
        "files": {path: read_text(Path(path)) for path in given["files"]},
        "unwritable": unwritable(Path(folder, "any") for folder in given["folders"]),
        "packages": node.packages(given["package_globs"]),
        "modules": node.modules(given["kernels"]),
        "services": node.services(given["services"]),
        "users": gpu_users(given["bystanders"]),
        "programs": [name for name in given["programs"] if module.get_bin_path(name)],
        "uvm": Path("/dev/nvidia-uvm").exists(),
        "fabric": told["fabric.state"],
        "persistence": told["persistence_mode"],
        "initramfs_older": older_initramfs(Path(given["newer_than_initramfs"])),
    }


def main() -> None:
    """Ansible's entry point."""
    names = {"type": "list", "elements": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "newer_than_initramfs": {"type": "path", "required": True},
            **dict.fromkeys(
                ("files", "folders", "package_globs", "kernels", "services", "bystanders", "programs"), names
            ),
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
