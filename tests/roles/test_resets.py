"""What undoes a role's work takes the promise with it: a node that is reset has no label."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.generate import roles
from tests.roles.templating import load

CHANGES = ("file", "copy", "command", "systemd_service", "package")


def included(task: dict[str, object]) -> object:
    return task.get("ansible.builtin.include_role")


@pytest.mark.parametrize("name", ["container_runtime", "host_tuning", "rdma"])
def test_a_reset_takes_the_label_before_it_changes_anything(name: str) -> None:
    (role,) = (role for role in roles.roles() if role.name == name)
    tasks = load(Path(role, "tasks/reset.yml"))

    withdrawn = [included(task) for task in tasks].index({"name": "node_profile", "tasks_from": "withdraw"})

    assert [
        task["name"] for task in tasks[:withdrawn] if {f"ansible.builtin.{kind}" for kind in CHANGES} & set(task)
    ] == []
