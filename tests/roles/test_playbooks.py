"""In which order the playbooks take the nodes, and what ends a run before it begins.

Runs of ansible-playbook on this machine under several names; the roles' own work is replaced by tasks that tell.
"""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.cache import REPO
from tests.roles.running import Run, ansible_playbook
from tests.roles.templating import load

PLAYBOOKS = REPO / "playbooks"
CHANGING = [PLAYBOOKS / "site.yml", PLAYBOOKS / "reset.yml"]
NODES = ["node-1", "node-2", "node-3"]
ANSWERS: list[dict[str, Any]] = [
    {"ansible.builtin.debug": {"msg": "begun with {{ ansible_play_batch | join('+') }}"}},
    {"ansible.builtin.fail": {"msg": "as the test wants it"}, "when": "inventory_hostname == fails | default('')"},
    {
        "block": [
            {"ansible.builtin.fail": {"msg": "this is mended"}, "when": "inventory_hostname == mended | default('')"}
        ],
        "rescue": [{"ansible.builtin.debug": {"msg": "mended"}}],
    },
    {
        "block": [{"ansible.builtin.fail": {"msg": "EINVAL"}, "when": "inventory_hostname == explained | default('')"}],
        "rescue": [{"ansible.builtin.fail": {"msg": "The kernel does not take it (EINVAL)."}}],
    },
    {"machine_refuse": {"msg": ["a slip"]}, "when": "inventory_hostname == slip | default('')"},
    {
        "machine_refuse": {"msg": ["a slip in {{ item }}"]},
        "loop": ["one", "two"],
        "when": "inventory_hostname == slips | default('')",
    },
    {"machine_refuse": {"msg": ["a torn disk"], "unfit": True}, "when": "inventory_hostname == torn | default('')"},
    {"ansible.builtin.ping": {}},
    {"ansible.builtin.fail": {"msg": "no API"}, "when": "inventory_hostname == once | default('')", "run_once": True},
    {"ansible.builtin.debug": {"msg": "ended {{ inventory_hostname }}"}},
]
LOOK: list[dict[str, Any]] = [
    {
        "ansible.builtin.set_fact": {"preflight_report": {"status": "told by the test"}},
        "when": "inventory_hostname != blind | default('')",
    },
    {
        "ansible.builtin.fail": {"msg": "no disk"},
        "when": "inventory_hostname in [unfit | default(''), blind | default('')]",
    },
]
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
"""Nothing listens on the port of `discard`."""
LEAVE = {"container_runtime_restart_ok": True}


def answered(playbook: Path, tasks: list[dict[str, Any]]) -> None:
    """Put ``tasks`` in the place of the roles of the playbook's last play; what rescues them stays."""
    *parts, play = load(playbook)
    (block,) = play["tasks"]
    assert all("ansible.builtin.import_role" in task for task in block["block"])
    del play["become"]
    playbook.write_text(yaml.safe_dump([*parts, play | {"tasks": [block | {"block": tasks}]}]))


def told(task: dict[str, Any]) -> dict[str, Any]:
    """The task, but the entry point of a role that it includes is only named."""
    role = task.get("ansible.builtin.include_role")
    if role is None:
        return task
    kept = {key: value for key, value in task.items() if key != "ansible.builtin.include_role"}
    return kept | {"ansible.builtin.debug": {"msg": f"{role['tasks_from']} {{{{ inventory_hostname }}}}"}}


def run(folder: Path, hosts: dict[str, dict[str, Any]], *words: str, group: str = "training_nodes") -> Run:
    """Run site.yml on ``hosts`` with their variables, its roles replaced by :data:`ANSWERS`."""
    shutil.copytree(PLAYBOOKS, folder / "playbooks", dirs_exist_ok=True)
    (folder / "roles").symlink_to(REPO / "roles")
    answered(folder / "playbooks/site.yml", ANSWERS)
    answered(folder / "playbooks/parts/preflight.yml", LOOK)
    unfit = folder / "playbooks/tasks/unfit.yml"
    unfit.write_text(yaml.safe_dump([told(task) for task in load(unfit)]))
    inventory = {group: {"hosts": hosts, "vars": {"ansible_python_interpreter": sys.executable}}}
    local = {name: {"ansible_connection": "local"} | variables for name, variables in hosts.items()}
    inventory[group]["hosts"] = local
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    plugins = f"{PLAYBOOKS / 'action_plugins'}:{REPO / 'roles/machine/action_plugins'}"
    env = {"ANSIBLE_ACTION_PLUGINS": plugins}
    return ansible_playbook(folder / "playbooks/site.yml", folder / "inventory.yml", *words, env=env)


def test_both_playbooks_that_change_nodes_take_them_in_the_same_order() -> None:
    site_parts, reset_parts = (
        {play["ansible.builtin.import_playbook"] for play in load(path) if "ansible.builtin.import_playbook" in play}
        for path in CHANGING
    )
    site, reset = (next(play for play in load(path) if "serial" in play) for path in CHANGING)

    assert reset_parts <= site_parts
    assert [site[key] for key in ("hosts", "serial", "pre_tasks")] == [
        reset[key] for key in ("hosts", "serial", "pre_tasks")
    ]


def test_without_leave_to_interrupt_all_nodes_are_taken_at_once_and_a_failed_one_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, {node: {} for node in NODES}, "-e", "fails=node-1")

    assert done.begun == ["node-1+node-2+node-3"]
    assert done.ended == {"node-2", "node-3"}
    assert done.status == 2


def test_a_node_that_preflight_refuses_is_left_out_and_the_others_are_prepared(tmp_path: Path) -> None:
    done = run(tmp_path, dict.fromkeys(NODES, LEAVE), "-e", "unfit=node-1")

    assert (done.status, done.begun, done.ended) == (2, ["node-2", "node-3"], {"node-2", "node-3"})
    assert done.summary["node-1"] == "failed ansible.builtin.fail: no disk"
    assert done.withdrawn == ["node-1"]


def test_a_node_on_which_a_role_fails_loses_its_label_though_nothing_was_changed(tmp_path: Path) -> None:
    done = run(tmp_path, {node: {} for node in NODES}, "-e", "fails=node-2")

    assert done.withdrawn == ["node-2"]
    assert done.summary["node-2"] == "failed ansible.builtin.fail: as the test wants it"


def test_a_refused_argument_takes_no_label_and_a_node_that_is_found_unfit_by_a_refusal_loses_it(tmp_path: Path) -> None:
    words = ["-e", "slip=node-1", "-e", "torn=node-2", "-e", "slips=node-3"]

    done = run(tmp_path, {node: {} for node in [*NODES, "node-4"]}, *words)

    assert (done.status, done.withdrawn) == (2, ["node-2"])
    assert done.summary == {
        "node-1": "failed machine_refuse: a slip",
        "node-2": "failed machine_refuse: a torn disk",
        "node-3": "failed machine_refuse: a slip in one",
        "node-4": "done",
    }


def test_a_node_that_dies_while_it_is_worked_on_counts_as_unreachable_after_two_minutes() -> None:
    parser = configparser.RawConfigParser()
    parser.read(REPO / "ansible.cfg")
    words = shlex.split(parser["ssh_connection"]["ssh_args"])
    options = dict(word.split("=") for word in words if "=" in word)

    assert int(options["ServerAliveInterval"]) * int(options["ServerAliveCountMax"]) == 120


def test_two_names_of_one_machine_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    same = LEAVE | {"machine_node_name": "gpu-7"}

    done = run(tmp_path, {"node-1": same, "node-2": LEAVE, "node-3": same})

    assert (done.status, done.begun) == (2, [])
    assert "node-1, node-3 are all the node gpu-7." in done.output


@pytest.mark.parametrize("words", [["--tags", "tuning"], ["--start-at-task", "ansible.builtin.ping"]])
def test_a_run_that_is_told_to_leave_out_the_choice_of_nodes_says_that_it_took_none(
    tmp_path: Path, words: list[str]
) -> None:
    done = run(tmp_path, {node: {} for node in NODES}, *words)

    assert done.ended == set()
    assert "No node was taken" in done.output


def test_a_node_that_could_not_be_looked_at_keeps_what_it_has(tmp_path: Path) -> None:
    done = run(tmp_path, {node: {} for node in NODES}, "-e", "blind=node-1")

    assert (done.status, done.withdrawn) == (2, [])
    assert done.summary["node-1"].startswith("failed")


def test_with_leave_one_node_is_taken_after_the_other(tmp_path: Path) -> None:
    done = run(tmp_path, {node: {} for node in NODES}, "-e", "container_runtime_restart_ok=true")

    assert (done.status, done.begun, done.ended) == (0, NODES, set(NODES))


def test_with_leave_the_first_failure_spares_the_nodes_after_it_and_they_are_named(tmp_path: Path) -> None:
    done = run(tmp_path, dict.fromkeys(NODES, LEAVE), "-e", "fails=node-2")

    assert done.ended == {"node-1"}
    assert done.summary == {
        "node-1": "done",
        "node-2": "failed ansible.builtin.fail: as the test wants it",
        "node-3": "not begun because of node-2",
    }


def test_nodes_without_leave_are_taken_first_and_a_batch_has_one_failure_domain_only(tmp_path: Path) -> None:
    racks = {"node-1": "a", "node-2": "b", "node-3": "a", "node-4": "b", "node-5": "a"}
    hosts: dict[str, dict[str, Any]] = {node: LEAVE | {"failure_domain": rack} for node, rack in racks.items()}

    done = run(tmp_path, hosts | {"node-6": {}}, "-e", "site_serial=2")

    assert done.begun == ["node-6", "node-1+node-3", "node-5", "node-2+node-4"]


def test_a_failure_that_a_role_has_mended_is_none_of_the_node_s(tmp_path: Path) -> None:
    done = run(tmp_path, {"node-1": {}, "node-2": {}, "node-3": {}}, "-e", "mended=node-1", "-e", "fails=node-2")

    assert done.summary["node-2"].endswith("as the test wants it")
    assert done.states == ["done", "failed", "done"]


def test_of_a_failure_that_a_role_explains_the_explanation_is_kept(tmp_path: Path) -> None:
    done = run(tmp_path, {"node-1": {}}, "-e", "explained=node-1")

    assert done.summary["node-1"] == "failed ansible.builtin.fail: The kernel does not take it (EINVAL)."


def test_what_the_node_says_where_no_module_comes_to_run_is_in_the_last_word(tmp_path: Path) -> None:
    nobody = {"ansible_become": True, "ansible_become_exe": "/nowhere/sudo", "ansible_become_user": "nobody"}

    done = run(tmp_path, {"node-1": LEAVE | nobody})

    assert "/nowhere/sudo: not found. Fix: install sudo" in done.summary["node-1"]


def test_nodes_that_ansible_drops_when_a_task_for_all_of_them_fails_are_not_called_done(tmp_path: Path) -> None:
    done = run(tmp_path, {node: {} for node in NODES}, "-e", "once=node-1")

    assert (done.status, done.ended) == (2, set())
    assert done.summary == {
        "node-1": "failed ansible.builtin.fail: no API",
        "node-2": "broken off because of what failed on node-1",
        "node-3": "broken off because of what failed on node-1",
    }


def test_an_unreachable_node_in_a_batch_harms_no_other_and_the_next_batch_is_not_begun(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, Any]] = dict.fromkeys(("node-1", "node-2", "node-3", "node-4"), LEAVE)

    done = run(tmp_path, hosts | {"node-1": LEAVE | AWAY}, "-e", "site_serial=2")

    assert done.status == 4
    assert done.begun == ["node-1+node-2"]
    assert done.ended == {"node-2"}
    assert done.summary["node-1"].startswith("unreachable")
    assert "Fix: check ansible_host" in done.summary["node-1"]
    assert done.summary["node-4"] == "not begun because of node-1"


def test_variables_that_cannot_be_right_are_told_together_before_any_node_is_begun(tmp_path: Path) -> None:
    unknown = {"host_tuning_somaxcon": 1, "host_tunning_rtt_ms": 1, "failure_domains": "a"}
    mistyped = {"host_tuning_file_max": "many", "host_tuning_rtt_ms": "{{ none_such }}"}

    done = run(tmp_path, {"node-1": {}, "node-2": unknown, "node-3": mistyped})

    assert (done.status, done.begun) == (2, [])
    for sentence in [
        "node-2: host_tuning_somaxcon is no argument of role host_tuning. Did you mean host_tuning_somaxconn?"
        " roles/host_tuning/README.md lists them.",
        "node-2: host_tunning_rtt_ms is no argument of any role. Did you mean host_tuning_rtt_ms?",
        "node-2: failure_domains is no argument of any role. Did you mean failure_domain?",
        "node-3: argument 'host_tuning_file_max' is of type str and we were unable to convert to int",
        "node-3: host_tuning_rtt_ms cannot be evaluated: 'none_such' is undefined",
    ]:
        assert sentence in done.output


@pytest.mark.parametrize(
    ("hosts", "words", "group", "sentence"),
    [
        ({}, [], "training_nodes", "the inventory has no node in the group training_nodes. Put your nodes below"),
        ({"node-1": {}}, [], "trainig_nodes", "the inventory has no node in the group training_nodes"),
        (
            {"node-1": {}},
            ["--limit", "node-1,node-7"],
            "training_nodes",
            "--limit names node-7, which is neither a node nor a group of the inventory.",
        ),
    ],
    ids=["empty group", "slip in the group", "slip in the limit"],
)
def test_a_run_without_the_nodes_that_were_meant_fails(
    tmp_path: Path, hosts: dict[str, dict[str, Any]], words: list[str], group: str, sentence: str
) -> None:
    done = run(tmp_path, hosts, *words, group=group)

    assert done.status == 2
    assert done.begun == []
    assert sentence in " ".join(done.output.split())


@pytest.mark.parametrize("words", [[], ["--limit", "node-1"]])
def test_an_inventory_that_is_not_there_fails_the_run(tmp_path: Path, words: list[str]) -> None:
    """With --limit Ansible itself would have nobody to do anything for, and end well."""
    done = ansible_playbook(PLAYBOOKS / "site.yml", tmp_path / "nodes.yml", *words)

    assert done.status != 0
    assert re.search(r"the inventory has no node .*with -i\.", " ".join(done.output.split()))


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("waiting", 2)])
def test_a_reset_that_leaves_something_to_be_undone_fails_and_says_what(tmp_path: Path, status: str, code: int) -> None:
    *_, last = load(PLAYBOOKS / "reset.yml")
    (tmp_path / "play.yml").write_text(yaml.safe_dump([last | {"hosts": "all"}]))
    report = {"status": status, "why": "kubelet has to be restarted."}
    hosts = {"node-1": {"ansible_connection": "local", "cpu_manager_report": report}}
    (tmp_path / "nodes.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))

    done = ansible_playbook(tmp_path / "play.yml", tmp_path / "nodes.yml")

    assert done.status == code
    assert ("Not all is undone. kubelet has to be restarted." in " ".join(done.output.split())) == (code == 2)
