"""Ansible action of the roles: end a node's run before anything is changed on it, because of what is asked for."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: ``msg``, a sentence for each reason, and ``unfit``, whether the node itself is one of them.

    Fails always. The result's ``refused`` tells playbooks that the node is as it was and that only the arguments are
    at fault: what was promised about it holds as before.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The failure; also in check mode."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {"msg": {"type": "list", "required": True}, "unfit": {"type": "bool", "default": False}}
        )
        return result | {"failed": True, "msg": arguments["msg"], "refused": not arguments["unfit"]}
