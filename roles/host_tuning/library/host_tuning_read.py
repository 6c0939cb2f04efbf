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
  - Reads the role's record and kernel values. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  sysctls:
    description: Keys of the kernel values to read, beside those of the record.
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
sysctls:
  description: Kernel values by key, words joined by one space; without the keys that this kernel does not show.
  returned: always
  type: dict
missing_programs:
  description: Those of O(programs) that are not there.
  returned: always
  type: list
"""


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


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    record = read_record(Path(module.params["record"]))
    return {
        "record": record,
        "sysctls": read_sysctls(sorted({*module.params["sysctls"], *record.get("sysctls", {})})),
        "missing_programs": [name for name in module.params["programs"] if module.get_bin_path(name) is None],
    }


def main() -> None:
    """Ansible's entry point."""
    names = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "sysctls": {**names, "required": True},
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
