#!/usr/bin/python
"""Ansible module of the role container_runtime: everything that the role decides on, read from the node in one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: container_runtime_read
short_description: Read what the role container_runtime decides on
description:
  - Reads the role's record, systemd units and the limits of running processes. Changes nothing.
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
  services:
    description: Names of systemd services without C(.service), beside those of the record and the drop-ins.
    type: list
    elements: str
    required: true
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
drop_ins:
  description: Texts of the drop-ins that are there, by path.
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
nr_open:
  description: The kernel's highest number of open files of one process.
  returned: always
  type: int
check_mode:
  description: Whether the play only checks. C(ansible_check_mode) does not tell of a play with C(check_mode).
  returned: always
  type: bool
gpus:
  description: Whether NVIDIA devices are there.
  returned: always
  type: bool
gpu_link:
  description: Whether the device link is there that keeps GPUs in containers through a reload of systemd.
  returned: always
  type: bool
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
        "drop_ins": {str(path): path.read_text(encoding="utf-8") for path in drop_ins},
        "process_1": {
            name: Path("/proc/1", name).read_text(encoding="utf-8") for name in ("limits", "status", "uid_map")
        },
        "units": units,
        "running": read_running(units),
        "nr_open": int(Path("/proc/sys/fs/nr_open").read_text(encoding="ascii")),
        "check_mode": module.check_mode,
        "gpus": GPUS.exists(),
        "gpu_link": GPU_LINK.exists(),
    }


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "units": {"type": "path", "required": True},
            "drop_in": {"type": "str", "required": True},
            "services": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
