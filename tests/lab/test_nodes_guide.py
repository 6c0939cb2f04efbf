"""The commands of docs/nodes.md, in their order, take two bare machines to a check that is all green, and back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lab import spares
from scripts.lab.host import podman_env
from scripts.stages import Stages
from tests.roles.running import Run, ansible_playbook
from tests.roles.test_nodes_guide import COMMANDS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800, func_only=True)]


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The `nodes.yml` of two machines as they come, without Kubernetes' API."""
    path = tmp_path_factory.mktemp("guide") / "nodes.yml"
    with spares.machines(2, Stages()) as names:
        # They are containers, and their kubelet is a stand-in that no CPU manager can be switched on.
        variables = {"container_runtime_limit_beyond_host": "lower", "cpu_manager_policy": "none"}
        path.write_text(spares.inventory(names, "", variables))
        yield path


def follow(command: str, inventory: Path) -> Run:
    """Run one of the guide's commands."""
    words = shlex.split(command)
    assert words[:3] == ["ansible-playbook", "-i", "nodes.yml"]
    return ansible_playbook(Path(words[3]), inventory, *words[4:], env=podman_env())


def changed(run: Run) -> set[int]:
    """How many tasks changed something, on each node."""
    return {int(number) for number in re.findall(r" changed=(\d+) ", run.output)}


def test_the_guide_leads_from_bare_machines_to_all_green_and_back(inventory: Path) -> None:
    commands = [command for command in COMMANDS if "upgrade_driver" not in command]  # which needs GPUs and a cluster

    look, prepare, allow, look_again, undo = (follow(command, inventory) for command in commands)

    assert look.status == 2
    assert "2 of 2 nodes are not as asked" in look.output
    assert prepare.status == 0
    assert set(prepare.states) <= {"waiting", "done"}  # whether the services' processes have the limits already
    assert (allow.status, set(allow.states)) == (0, {"done"})
    assert (look_again.status, changed(look_again)) == (0, {0})
    assert "All 2 nodes are as asked." in look_again.output
    assert (undo.status, set(undo.states)) == (0, {"done"})
