"""In which order the playbooks take the nodes; the role's own work is replaced by a task that fails on one node."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from scripts import command
from scripts.cache import REPO
from tests.roles.templating import load

PLAYBOOKS = REPO / "playbooks"
CHANGING = [PLAYBOOKS / "site.yml", PLAYBOOKS / "reset.yml"]
NODES = ["node-1", "node-2", "node-3"]
ANSWERS: list[dict[str, Any]] = [
    {"ansible.builtin.debug": {"msg": "begun with {{ ansible_play_batch | join('+') }}"}},
    {"ansible.builtin.fail": {"msg": "as the test wants it"}, "when": "inventory_hostname == fails"},
    {"ansible.builtin.debug": {"msg": "ended {{ inventory_hostname }}"}},
]


def run(folder: Path, hosts: dict[str, dict[str, Any]], **extra: Any) -> tuple[set[str], set[str]]:
    """The batches that were begun, and the nodes that were finished."""
    *parts, play = load(PLAYBOOKS / "site.yml")
    kept = {key: value for key, value in play.items() if key not in ("roles", "tasks", "become", "gather_subset")}
    shutil.copytree(PLAYBOOKS / "parts", folder / "parts")
    (folder / "site.yml").write_text(yaml.safe_dump([*parts, kept | {"gather_facts": False, "tasks": ANSWERS}]))
    (folder / "inventory.yml").write_text(yaml.safe_dump({"training_nodes": {"hosts": hosts}}))
    words = [word for name, value in ({"fails": ""} | extra).items() for word in ("--extra-vars", f"{name}={value}")]
    program = Path(sys.executable).parent / "ansible-playbook"
    try:
        output = command.run(
            [program, "--inventory", folder / "inventory.yml", folder / "site.yml", *words],
            cwd=REPO,
            env={"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOG_PATH": str(folder / "log")},
        )
    except command.CommandError:
        output = (folder / "log").read_text(encoding="utf-8")
    begun = {line.partition("begun with ")[2] for line in output.splitlines() if "begun with node" in line}
    ended = {line.partition("ended ")[2] for line in output.splitlines() if "ended node" in line}
    return begun, ended


def test_both_playbooks_that_may_restart_services_take_the_nodes_in_the_same_order() -> None:
    site, reset = ({key: play[key] for key in ("serial", "max_fail_percentage")} for *_, play in map(load, CHANGING))

    assert site == reset


def test_without_leave_to_restart_all_nodes_are_taken_at_once(tmp_path: Path) -> None:
    assert run(tmp_path, {node: {} for node in NODES}) == ({"node-1+node-2+node-3"}, set(NODES))


def test_without_leave_to_restart_a_failed_node_does_not_stop_the_others(tmp_path: Path) -> None:
    _, ended = run(tmp_path, {node: {} for node in NODES}, fails="node-1")

    assert ended == {"node-2", "node-3"}


def test_with_leave_to_restart_one_node_is_taken_after_the_other(tmp_path: Path) -> None:
    begun, ended = run(tmp_path, {node: {} for node in NODES}, host_tuning_restart_ok="true")

    assert (begun, ended) == (set(NODES), set(NODES))


def test_with_leave_to_restart_the_first_failure_spares_the_nodes_after_it(tmp_path: Path) -> None:
    _, ended = run(tmp_path, {node: {} for node in NODES}, host_tuning_restart_ok="true", fails="node-2")

    assert ended == {"node-1"}


def test_leave_that_the_inventory_gives_to_one_node_counts_as_well(tmp_path: Path) -> None:
    begun, _ = run(tmp_path, {"node-1": {"host_tuning_restart_ok": True}, "node-2": {}})

    assert begun == {"node-1", "node-2"}


def test_more_nodes_at_once_are_a_matter_of_one_variable_and_a_failure_still_stops(tmp_path: Path) -> None:
    begun, ended = run(
        tmp_path,
        {node: {} for node in NODES},
        host_tuning_restart_ok="true",
        host_tuning_serial=2,
        fails="node-1",
    )

    assert (begun, ended) == ({"node-1+node-2"}, set())
