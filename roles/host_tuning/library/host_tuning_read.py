#!/usr/bin/python
"""Ansible module of the role host_tuning: everything that the role decides on, read from the node in one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_tuning_read
short_description: Read what the role host_tuning decides on
description:
  - Reads the role's record, kernel values, systemd units and the limits of running processes. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  units:
    description: Folder of systemd's units.
    type: path
    required: true
  drop_in:
    description: File name of the role's unit drop-ins.
    type: str
    required: true
  sysctls:
    description: Keys of the kernel values to read, beside those of the record.
    type: list
    elements: str
    required: true
  services:
    description: Names of systemd services without C(.service), beside those of the record and the drop-ins.
    type: list
    elements: str
    required: true
  programs:
    description: Names of programs to look for.
    type: list
    elements: str
    default: []
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
drop_ins:
  description: Paths of the drop-ins that are there.
  returned: always
  type: list
sysctls:
  description: Kernel values by key, words joined by one space; without the keys that this kernel does not show.
  returned: always
  type: dict
process_1:
  description: Texts of C(limits), C(status) and C(uid_map) of process 1.
  returned: always
  type: dict
units:
  description: Properties of each service's unit by the service's name.
  returned: always
  type: dict
running:
  description: Text of C(/proc/PID/limits) of each service that runs.
  returned: always
  type: dict
gpus:
  description: Whether NVIDIA devices are there.
  returned: always
  type: bool
gpu_link:
  description: Whether the device link is there that keeps GPUs in containers through a reload of systemd.
  returned: always
  type: bool
missing_programs:
  description: Those of O(programs) that are not there.
  returned: always
  type: list
"""

UNIT_PROPERTIES = ["Id", "LoadState", "MainPID", "NeedDaemonReload", "LimitNOFILE", "LimitMEMLOCK"]
GPUS, GPU_LINK = Path("/dev/nvidiactl"), Path("/dev/char/195:255")


def read_record(path: Path) -> dict[str, Any]:
    """The record, empty where there is none. Raises ValueError for one that was damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON ({error}). Remove it; the values of before are then not known."
        ) from error
    return record


def read_sysctls(keys: Sequence[str], root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Kernel values by key, without those that are not there or cannot be read."""
    values = {}
    for key in keys:
        try:
            values[key] = " ".join(root.joinpath(*key.split(".")).read_text(encoding="utf-8").split())
        except OSError:
            continue
    return values


def service_of(drop_in: Path) -> str:
    """The service whose unit a drop-in belongs to, from a path like ``.../kubelet.service.d/90-limits.conf``."""
    return drop_in.parent.name.removesuffix(".service.d")


def parse_units(show: str) -> dict[str, dict[str, str]]:
    """The blocks that ``systemctl show`` prints for several units, by the service's name."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines()) for block in show.strip().split("\n\n") if block)
    return {block["Id"].removesuffix(".service"): block for block in blocks}


def read_running(units: dict[str, dict[str, str]], root: Path = Path("/proc")) -> dict[str, str]:
    """The limits of each service's main process, without services that do not run."""
    running = {}
    for service, unit in units.items():
        try:
            running[service] = (root / unit["MainPID"] / "limits").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):  # 0, or ended since systemd was asked
            continue
    return running


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    record = read_record(Path(module.params["record"]))
    drop_ins = sorted(Path(module.params["units"]).glob(f"*.service.d/{module.params['drop_in']}"))
    services = sorted({*module.params["services"], *record.get("services", []), *map(service_of, drop_ins)})
    show = ["systemctl", "show", f"--property={','.join(UNIT_PROPERTIES)}", "--"]
    _, shown, _ = module.run_command([*show, *(f"{service}.service" for service in services)], check_rc=True)
    units = parse_units(shown)
    return {
        "record": record,
        "drop_ins": [str(path) for path in drop_ins],
        "sysctls": read_sysctls(sorted({*module.params["sysctls"], *record.get("sysctls", {})})),
        "process_1": {
            name: Path("/proc/1", name).read_text(encoding="utf-8") for name in ("limits", "status", "uid_map")
        },
        "units": units,
        "running": read_running(units),
        "gpus": GPUS.exists(),
        "gpu_link": GPU_LINK.exists(),
        "missing_programs": [name for name in module.params["programs"] if module.get_bin_path(name) is None],
    }


def main() -> None:
    """Ansible's entry point."""
    names = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "units": {"type": "path", "required": True},
            "drop_in": {"type": "str", "required": True},
            "sysctls": {**names, "required": True},
            "services": {**names, "required": True},
            "programs": {**names, "default": []},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
