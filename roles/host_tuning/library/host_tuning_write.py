#!/usr/bin/python
"""Ansible module of the role host_tuning: sets kernel values, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_tuning_write
short_description: Set kernel values, all of them or none
description:
  - Writes kernel values and reads each back. Where the kernel refuses one, or has made something else of it, those
    written before it are returned to what they were.
options:
  values:
    description: Kernel values by the name of a sysctl or a path of /sys, words separated by one space.
    type: dict
    required: true
"""

RETURN = r"""
before:
  description: What the values that changed were, by key.
  returned: success
  type: dict
key:
  description: The key that failed.
  returned: failure
  type: str
kept:
  description: Values that could not be returned to what they were, by key.
  returned: failure
  type: dict
"""

PROC_SYS = Path("/proc/sys")


class RefusedError(Exception):
    """The kernel did not take a value; ``kept`` are those of before it that stay changed."""

    def __init__(self, key: str, reason: str, kept: dict[str, str]) -> None:
        super().__init__(reason)
        self.key, self.kept = key, kept


def _file(key: str, root: Path) -> Path:
    """The path of a sysctl by its name, one of /sys as it is."""
    return root.joinpath(*key.split("."))


def show(key: str, root: Path = PROC_SYS) -> str:
    """A kernel value, its words separated by one space."""
    return " ".join(_file(key, root).read_text(encoding="utf-8").split())


def _write(key: str, value: str, root: Path) -> None:
    _file(key, root).write_text(f"{value}\n", encoding="utf-8")


def changes(values: Mapping[str, str], root: Path = PROC_SYS) -> dict[str, str]:
    """What the values that differ from ``values`` are. Raises RefusedError for a key that is not there."""
    before = {}
    for key in values:
        try:
            before[key] = show(key, root)
        except OSError as error:
            raise RefusedError(key, str(error.strerror), {}) from error
    return {key: value for key, value in before.items() if value != values[key]}


def write(values: Mapping[str, str], root: Path = PROC_SYS) -> dict[str, str]:
    """Set ``values`` and return what those that changed were. Raises RefusedError, with all as it was."""
    before = changes(values, root)
    done: list[str] = []
    for key in before:
        try:
            _write(key, values[key], root)
            done.append(key)
            found = show(key, root)
        except OSError as error:
            raise RefusedError(key, str(error.strerror), _undo(before, done, root)) from error
        if found != values[key]:
            raise RefusedError(key, f"it made {found!r} of it", _undo(before, done, root))
    return before


def _undo(before: Mapping[str, str], done: list[str], root: Path) -> dict[str, str]:
    """Return the ``done`` keys to their values of ``before``; what could not be returned is the result."""
    kept = {}
    for key in reversed(done):
        try:
            _write(key, before[key], root)
        except OSError:
            kept[key] = show(key, root)
    return kept


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={"values": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    values = {key: str(value) for key, value in module.params["values"].items()}
    try:
        before = changes(values) if module.check_mode else write(values)
    except RefusedError as refused:
        module.fail_json(msg=str(refused), key=refused.key, kept=refused.kept)
    module.exit_json(
        changed=bool(before),
        before=before,
        diff={
            "before": "".join(f"{key} = {value}\n" for key, value in before.items()),
            "after": "".join(f"{key} = {values[key]}\n" for key in before),
        },
    )


if __name__ == "__main__":
    main()
