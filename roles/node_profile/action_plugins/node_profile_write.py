"""Writes a file on the machine that runs Ansible, in Ansible's own process: one module call less for each node."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

REMEDY = "Name another place in node_profile_passports or node_profile_output."


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: ``path`` of the file, whose folder is made, and its ``content``."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Replace the file in one step; never ``changed``, as no node is.

        Where that fails, ``refused`` tells playbooks, as of machine_refuse, that it says nothing about the node.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}}
        )
        path = Path(arguments["path"])
        if not self._task.check_mode:
            try:
                _replace(path, arguments["content"])
            except OSError as error:
                told = f"{path} cannot be written on the machine that runs Ansible: {error.strerror}. {REMEDY}"
                return result | {"failed": True, "msg": told, "refused": True}
        return result | {"changed": False, "path": str(path)}


def _replace(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
    umask = os.umask(0)
    os.umask(umask)
    Path(partial).chmod(0o666 & ~umask)
    Path(partial).replace(path)
