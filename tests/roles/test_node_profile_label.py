"""Runs of the role node_profile on this machine: a label out of reach keeps the node from being changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from scripts.cache import REPO
from tests.roles.running import Run, ansible_playbook


def entry(folder: Path, point: str, labelled: object) -> Run:
    """Run an entry point without a kubeconfig, on a node that keeps a profile."""
    (folder / "profile.json").write_text(json.dumps({"labelled": labelled}))
    role = {"name": "node_profile", "tasks_from": point}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": role}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = {"ansible_python_interpreter": sys.executable, "__node_profile_file": str(folder / "profile.json")}
    (folder / "nodes.yml").write_text(
        yaml.safe_dump({"all": {"hosts": {"node-1": {"ansible_connection": "local"}}}}), encoding="utf-8"
    )
    return ansible_playbook(folder / "play.yml", folder / "nodes.yml", "--extra-vars", json.dumps(given))


@pytest.mark.parametrize("point", ["withdraw", "reset"])
def test_a_labelled_node_is_left_as_it_is_without_a_kubeconfig(tmp_path: Path, point: str) -> None:
    done = entry(tmp_path, point, labelled=True)

    assert done.status == 2
    assert "machine_kubeconfig is empty. Give the kubeconfig of the node's cluster" in " ".join(done.output.split())
    assert (tmp_path / "profile.json").exists()


@pytest.mark.parametrize("point", ["withdraw", "reset"])
def test_a_node_that_never_was_labelled_needs_no_kubeconfig(tmp_path: Path, point: str) -> None:
    done = entry(tmp_path, point, labelled=False)

    assert done.status == 0, done.output
    assert (tmp_path / "profile.json").exists() == (point == "withdraw")


def test_a_passport_that_cannot_be_written_here_says_nothing_about_the_node(tmp_path: Path) -> None:
    """playbooks/tasks/unfit.yml takes no label for a failure that is ``refused``."""
    (tmp_path / "passports").touch()
    write = {"node_profile_write": {"path": str(tmp_path / "passports/node-1.json"), "content": "{}"}}
    keep = {"ansible.builtin.debug": {"msg": "refused {{ ansible_failed_result.refused }}"}}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"block": [write], "rescue": [keep]}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    env = {"ANSIBLE_ACTION_PLUGINS": str(REPO / "roles/node_profile/action_plugins")}

    done = ansible_playbook(tmp_path / "play.yml", Path("localhost,"), env=env)

    assert "cannot be written on the machine that runs Ansible: File exists. Name another place" in " ".join(
        done.output.split()
    )
    assert "refused True" in done.output
