"""In which order upgrade_driver.yml goes, and where it stops; the roles are replaced by tasks that say their names."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import command
from scripts.cache import REPO
from tests.roles.templating import load

PLAYBOOKS = REPO / "playbooks"
NODES = {"node-1": {"ansible_connection": "local"}, "node-2": {"ansible_connection": "local"}}
UNTOUCHED = ["preflight node-1", "gate node-1"]
UPGRADED = [*UNTOUCHED, "drain node-1", "driver node-1"]

Task = dict[str, Any]


def says(what: str) -> Task:
    """A task that leaves a line in the log."""
    return {"ansible.builtin.debug": {"msg": f"heard: {what} {{{{ inventory_hostname }}}}"}}


def fails(on: str, message: str) -> Task:
    """A task that fails where the test wants it."""
    return {"ansible.builtin.fail": {"msg": message}, "when": f"fails == '{on}'"}


def publishes(report: str, **values: str) -> Task:
    """A task that publishes a role's report."""
    return {"ansible.builtin.set_fact": {report: values}}


STAND_INS: dict[str, list[Task]] = {
    "preflight/tasks/main.yml": [says("preflight"), fails("preflight", "CUDA 13 needs branch 580")],
    "nvidia_driver/tasks/gate.yml": [
        says("gate"),
        fails("gate", "no repository has it"),
        publishes("nvidia_driver_report", change="{{ fails != 'nothing' }}", why="", version="580.95.05"),
        {"ansible.builtin.set_fact": {"machine_facts": {"hostname": "{{ inventory_hostname }}"}}},
    ],
    "nvidia_driver/tasks/drained.yml": [
        says("driver"),
        fails("driver", "apt went wrong."),
        {"ansible.builtin.fail": {"msg": ["One.", "Two."]}, "when": "fails == 'several'"},
        publishes(
            "nvidia_driver_report",
            status="{{ 'waiting' if fails == 'reboot' else 'ok' }}",
            why="{{ 'Reboot the node.' if fails == 'reboot' else '' }}",
            version="580.95.05",
        ),
    ],
    "drain/tasks/main.yml": [
        says("drain"),
        publishes(
            "drain_report",
            status="{{ 'waiting' if fails == 'drain' else 'ok' }}",
            why="{{ 'drain_ok is false.' if fails == 'drain' else '' }}",
        ),
    ],
    "drain/tasks/uncordon.yml": [says("uncordon")],
}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs the playbook with the stand-ins; gives what was heard, and the whole log."""
    for path, tasks in STAND_INS.items():
        file = tmp_path / "roles" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(tasks), encoding="utf-8")
    _, play = load(PLAYBOOKS / "upgrade_driver.yml")
    shutil.copytree(PLAYBOOKS / "tasks", tmp_path / "tasks")
    (tmp_path / "upgrade.yml").write_text(yaml.safe_dump([play | {"become": False}]), encoding="utf-8")
    inventory = {"training_nodes": {"hosts": NODES, "vars": {"machine_node_name": ""}}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def _run(fails: str = "", *options: str) -> tuple[list[str], str]:
        log = tmp_path / "log"
        words = ["--inventory", str(tmp_path / "inventory.yml"), "--extra-vars", f"fails='{fails}'", *options]
        env = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOG_PATH": str(log), "ANSIBLE_ROLES_PATH": str(tmp_path / "roles")}
        program = Path(sys.executable).parent / "ansible-playbook"
        try:
            command.run([program, *words, tmp_path / "upgrade.yml"], cwd=tmp_path, env=env)
        except command.CommandError:
            assert fails, log.read_text(encoding="utf-8")
        text = log.read_text(encoding="utf-8")
        # Ansible shows the source of what fails as well.
        lines = [line for line in text.splitlines() if "heard: " in line and "{{" not in line]
        return [line.partition("heard: ")[2].strip("\"'") for line in lines], text

    return _run


def test_a_node_is_looked_at_drained_changed_and_given_back_before_the_next_one(run: Any) -> None:
    heard, _ = run()

    first = [*UPGRADED, "uncordon node-1"]
    assert heard == first + [line.replace("node-1", "node-2") for line in first]


@pytest.mark.parametrize("gate", ["preflight", "gate"])
def test_nothing_is_drained_for_a_change_that_cannot_be_made(run: Any, gate: str) -> None:
    heard, _ = run(gate)

    assert heard == UNTOUCHED[: 1 + (gate == "gate")]


def test_a_node_that_has_the_driver_already_is_not_drained(run: Any) -> None:
    heard, _ = run("nothing")

    assert heard == [*UNTOUCHED, *[line.replace("node-1", "node-2") for line in UNTOUCHED]]


def test_without_leave_to_drain_the_driver_is_not_touched(run: Any) -> None:
    heard, log = run("drain")

    assert heard == UPGRADED[:-1]
    assert "drain_ok is false." in log


@pytest.mark.parametrize(
    ("stage", "why"), [("driver", "apt went wrong."), ("several", "One. Two."), ("reboot", "Reboot the node.")]
)
def test_a_node_whose_driver_does_not_run_stays_cordoned_and_ends_the_run(run: Any, stage: str, why: str) -> None:
    heard, log = run(stage)

    assert heard == UPGRADED
    assert f"node-1 stays cordoned: {why}" in " ".join(log.split())
    assert "kubectl uncordon node-1" in " ".join(log.split())


def test_in_check_mode_the_node_is_only_looked_at(run: Any) -> None:
    heard, log = run("", "--check")

    assert heard == [*UNTOUCHED, *[line.replace("node-1", "node-2") for line in UNTOUCHED]]
    assert "The driver is to be changed." in log
