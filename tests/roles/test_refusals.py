"""A refusal leaves a node as it was: what it takes from it, and that one for a whole batch reaches every node of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.machine.filter_plugins.machine import unfit, unread
from scripts.cache import REPO
from tests.roles.running import Run, ansible_playbook
from tests.roles.templating import evaluate, load

DEAD = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "dead",
    "contexts": [{"name": "dead", "context": {"cluster": "dead", "user": "dead"}}],
    "clusters": [{"name": "dead", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "dead", "user": {}}],
}
"""A cluster on the port of `discard`, where nobody listens."""
NODES = ("node-1", "node-2")


def rule(*, broken: bool, **more: Any) -> dict[str, Any]:
    return {"broken": broken, "sentence": "so it is", **more}


def test_a_node_is_unfit_by_a_broken_rule_about_itself_alone() -> None:
    assert unfit([rule(broken=True), rule(broken=False, unfit=True)]) is False
    assert unfit([rule(broken=True), rule(broken=True, unfit=True)]) is True


def test_of_several_reads_of_a_cluster_the_first_that_failed_tells_why() -> None:
    read: list[dict[str, Any]] = [{"resources": []}, {"skipped": True}, {}]
    wordless = {"failed_when_suppressed_exception": "(traceback unavailable)"}

    assert unread(read, "admin.conf") == ""
    assert unread([*read, {"msg": "Failed to get client\ndue to this.\n"}, wordless], "admin.conf") == (
        "the cluster cannot be read: Failed to get client due to this."
    )
    assert unread([*read, wordless], "admin.conf") == (
        "the cluster cannot be read: `kubectl --kubeconfig admin.conf get nodes` says why."
    )


@pytest.mark.parametrize(
    "role",
    ["container_runtime", "cpu_manager", "device_plugin", "host_tuning", "node_profile", "nvidia_driver", "rdma"],
)
def test_every_role_that_may_find_a_labelled_node_tells_arguments_from_the_node_where_it_refuses(role: str) -> None:
    tasks = [task for name in ("validate", "plan") for task in load_tasks(role, name)]

    (refusal,) = (task for task in tasks if "refusals" in str(task))

    assert f"__{role}_" in refusal["machine_refuse"]["unfit"]


def load_tasks(role: str, name: str) -> list[dict[str, Any]]:
    path = REPO / "roles" / role / "tasks" / f"{name}.yml"
    return load(path) if path.exists() else []


def refused_by(folder: Path, role: str, points: list[str], **more: Any) -> Run:
    """Two nodes of one batch, with a kubeconfig of a cluster that does not answer, run entry points of a role."""
    (folder / "kubeconfig").write_text(json.dumps(DEAD))
    include = [{"ansible.builtin.include_role": {"name": role, "tasks_from": point}} for point in points]
    rescue = [{"ansible.builtin.debug": {"msg": "went on {{ inventory_hostname }}"}}]
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"block": include, "rescue": rescue}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "machine_kubeconfig": str(folder / "kubeconfig"),
    }
    (folder / "nodes.yml").write_text(yaml.safe_dump({"all": {"hosts": dict.fromkeys(NODES, given)}}))
    return ansible_playbook(folder / "play.yml", folder / "nodes.yml", "--extra-vars", json.dumps(more))


@pytest.mark.parametrize("role", ["node_profile", "device_plugin"])
def test_a_cluster_that_does_not_answer_is_told_of_every_node_of_the_batch_and_each_goes_on(
    tmp_path: Path, role: str
) -> None:
    facts = {
        "__node_profile_file": str(tmp_path / "profile.json"),
        "__device_plugin_record_file": str(tmp_path / "device_plugin.json"),
        "__device_plugin_folder": str(tmp_path),
        "__device_plugin_applies": True,
    }

    done = refused_by(tmp_path, role, ["read", "validate"], **facts)

    assert done.status == 0, done.output
    assert [done.output.count(f"went on {node}") for node in NODES] == [1, 1]
    assert done.output.count("the cluster cannot be read") >= len(NODES)


def test_a_cluster_that_cannot_be_read_is_not_one_that_lacks_the_node() -> None:
    unanswered = {"msg": "503"}

    profile = evaluate(
        REPO / "roles/node_profile",
        "__node_profile_refusals",
        {
            "machine_facts": load(REPO / "tests/roles/samples/dgx-h100.yml"),
            "machine_kubeconfig": "admin.conf",
            "__machine_node": "dgx-01",
            "__node_profile_live": {"text": "", "object": {}},
            "__node_profile_cluster": unanswered,
        },
    )

    (refusal,) = profile
    assert refusal.startswith("the cluster cannot be read: 503. Give the kubeconfig")
