#!/usr/bin/python
"""Ansible module of the role host_tuning: everything that the role decides on, read from the node in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine.records import read_record, read_text
from ansible.module_utils.machine.writing import unwritable

DOCUMENTATION = r"""
module: host_tuning_read
short_description: Read what the role host_tuning decides on
description:
  - Reads the role's record and files, and kernel values. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  files:
    description: Paths of the role's other files by any name.
    type: dict
    required: true
  sysctls:
    description: Keys of the kernel values to read, beside those of the record.
    type: list
    elements: str
    required: true
  congestion_control:
    description: Name of the congestion control whose kernel module to look for; empty for none.
    type: str
    required: true
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
files:
  description: Texts of O(files) by their names, empty where a file is not there.
  returned: always
  type: dict
sysctls:
  description: Kernel values by key, words joined by one space; without the keys that this kernel does not show.
  returned: always
  type: dict
later:
  description: >-
    What files of systemd-sysctl set that are read after C(files.sysctl), by key, as C(file) and C(value). The role's
    own values for these keys would not outlive a boot.
  returned: always
  type: dict
read_only:
  description: Those of the keys that cannot be written, as in a container without privileges.
  returned: always
  type: list
congestion_controls:
  description: Congestion controls that the kernel has loaded.
  returned: always
  type: list
congestion_module:
  description: Whether the running kernel has a module for O(congestion_control).
  returned: always
  type: bool
unwritable:
  description: What of the paths of O(record) and O(files) cannot be written to, as on a read-only mount.
  returned: always
  type: list
"""

PROC_SYS = Path("/proc/sys")
BOOT_FOLDERS = [Path(root, "sysctl.d") for root in ("/etc", "/run", "/usr/local/lib", "/usr/lib")]
"""Where systemd-sysctl looks. Of files of one name it reads the first; all are read in the order of their names."""

AVAILABLE = "net.ipv4.tcp_available_congestion_control"


def file_of(key: str, root: Path = PROC_SYS) -> Path:
    """Where the kernel shows a value: the path of a sysctl by its name, one of /sys as it is."""
    return root.joinpath(*key.split("."))


def read_sysctls(keys: Sequence[str], root: Path = PROC_SYS) -> dict[str, str]:
    """Kernel values by key, without those that are not there or cannot be read."""
    values = {}
    for key in keys:
        try:
            values[key] = " ".join(file_of(key, root).read_text(encoding="utf-8").split())
        except OSError:
            continue
    return values


def read_later(own: Path, folders: Sequence[Path] = BOOT_FOLDERS) -> dict[str, dict[str, str]]:
    """What is set at boot after the file ``own``, by key. Patterns of keys are left out."""
    files: dict[str, Path] = {}
    for folder in folders:
        for file in folder.glob("*.conf"):
            files.setdefault(file.name, file)
    later = {}
    for name in sorted(name for name in files if name > own.name):
        for line in (read_text(files[name]) or "").splitlines():
            key, equals, value = line.strip().lstrip("-").partition("=")
            if equals and not key.startswith(("#", ";")):
                later[key.strip().replace("/", ".")] = {"file": str(files[name]), "value": " ".join(value.split())}
    return later


def has_module(module: AnsibleModule, name: str) -> bool:
    """Whether the running kernel has a module (or has built in) ``tcp_NAME``."""
    modinfo = module.get_bin_path("modinfo")
    if not name or modinfo is None:
        return False
    status, _, _ = module.run_command([modinfo, "--field", "name", f"tcp_{name}"])
    return bool(status == 0)


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    params = module.params
    record = read_record(Path(params["record"]), asked=dict, sysctls=dict)
    sysctls = read_sysctls(sorted({*params["sysctls"], *record.get("sysctls", {})}))
    return {
        "record": record,
        "files": {name: read_text(Path(path)) or "" for name, path in params["files"].items()},
        "sysctls": sysctls,
        "later": read_later(Path(params["files"]["sysctl"])),
        "read_only": [key for key in sysctls if not os.access(file_of(key), os.W_OK)],
        "congestion_controls": read_sysctls([AVAILABLE]).get(AVAILABLE, "").split(),
        "congestion_module": has_module(module, params["congestion_control"]),
        "unwritable": unwritable([params["record"], *params["files"].values()]),
    }


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "sysctls": {"type": "list", "elements": "str", "required": True},
            "congestion_control": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
