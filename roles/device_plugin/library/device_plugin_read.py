#!/usr/bin/python
"""Ansible module of the role device_plugin: what of a device plugin there is on the node itself."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine.records import read_record

DOCUMENTATION = r"""
module: device_plugin_read
short_description: Read what of a device plugin there is on the node
description:
  - Reads the role's record and the kubelet's folder of device plugins. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  folder:
    description: The kubelet's folder of device plugins.
    type: path
    required: true
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
kubelet:
  description: Whether the kubelet's own socket is there.
  returned: always
  type: bool
sockets:
  description: Names of the plugins' sockets on which somebody listens.
  returned: always
  type: list
dead_sockets:
  description: Names of the plugins' sockets on which nobody listens any more.
  returned: always
  type: list
registered:
  description: Number of devices by resource in the kubelet's checkpoint, which outlives its plugins.
  returned: always
  type: dict
"""

KUBELET = "kubelet.sock"
CHECKPOINT = "kubelet_internal_checkpoint"
SECONDS = 2.0
"""A plugin that does not take a connection in this time does not take the kubelet's either."""


def read(folder: Path, record: Path) -> dict[str, Any]:
    """All of :data:`RETURN`. Raises ValueError for a damaged record."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [file.name for file in files if stat.S_ISSOCK(file.lstat().st_mode)]
    alive = [name for name in names if _answers(folder / name)]
    return {
        "record": read_record(record, labels=list),
        "kubelet": KUBELET in alive,
        "sockets": [name for name in alive if name != KUBELET],
        "dead_sockets": [name for name in names if name not in alive],
        "registered": _registered(_json(folder / CHECKPOINT)),
    }


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _json(path: Path) -> dict[str, Any]:
    """The kubelet's JSON file; empty where there is none, or where it is half there, as in a moment of writing."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return found


def _registered(checkpoint: dict[str, Any]) -> dict[str, int]:
    devices = (checkpoint.get("Data") or {}).get("RegisteredDevices") or {}
    return {resource: len(ids or []) for resource, ids in devices.items()}


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={"record": {"type": "path", "required": True}, "folder": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(Path(module.params["folder"]), Path(module.params["record"])))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
