"""The role machine as Ansible runs it, on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.cache import REPO
from tests.roles.running import Run, ansible_playbook
from tests.roles.templating import load

NOT_FACTS = ("changed", "failed")
"""What Ansible adds to every result."""


def run(folder: Path, role: str = "machine", check_mode: bool = False, **variables: Any) -> Run:
    """Run the role on this machine and keep what it leaves in ``folder``."""
    keep = {
        "content": "{{ {'facts': machine_facts, 'node': __machine_node} | to_json }}",
        "dest": f"{folder}/left.json",
    }
    play = {
        "hosts": "nodes",
        "gather_facts": False,
        "check_mode": check_mode,
        "roles": [role],
        "tasks": [{"ansible.builtin.copy": keep, "check_mode": False}],
    }
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    (folder / "inventory.yml").write_text(
        yaml.safe_dump({"nodes": {"hosts": {"here": None}, "vars": local | variables}}), encoding="utf-8"
    )
    return ansible_playbook(folder / "play.yml", folder / "inventory.yml")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the role leaves of this machine."""
    folder = tmp_path_factory.mktemp("machine")
    assert run(folder, machine_node_name="worker-7").status == 0
    result: dict[str, Any] = json.loads((folder / "left.json").read_text(encoding="utf-8"))
    return result


def test_one_call_reads_this_machine_and_changes_nothing(left: dict[str, Any]) -> None:
    facts = left["facts"]

    assert facts["changed"] is False
    assert facts["memory_mib"] > 0
    assert [cpu["cpu"] for cpu in facts["cpus"]["cpus"]] == facts["cpus"]["online"]
    assert "lo" in {nic["name"] for nic in facts["nics"]}


def test_the_node_s_name_can_be_given(left: dict[str, Any]) -> None:
    assert left["node"] == "worker-7"


def test_every_fact_is_described_and_in_the_samples(left: dict[str, Any]) -> None:
    text = (REPO / "roles/machine/library/machine_read.py").read_text(encoding="utf-8")
    described = yaml.safe_load(text.split('RETURN = r"""')[1].split('"""')[0])
    facts = set(left["facts"]) - set(NOT_FACTS)

    assert facts == set(described) == set(load(REPO / "tests/roles/samples/vm.yml"))


def test_arguments_that_lead_nowhere_are_refused_together_before_anything_is_read(tmp_path: Path) -> None:
    result = run(tmp_path, machine_kubeconfig="/nowhere/config", machine_answer_seconds=0)

    assert result.status != 0
    said = " ".join(result.output.split())
    assert "machine_kubeconfig is /nowhere/config, which is no file" in said
    assert "machine_answer_seconds is 0; programs need 1 s" in said
    assert not (tmp_path / "left.json").exists()


@pytest.mark.parametrize("check_mode", [True, False])
def test_roles_know_a_play_that_only_checks_and_report_there_instead_of_failing(
    check_mode: bool, tmp_path: Path
) -> None:
    result = run(tmp_path, "preflight", check_mode, preflight_disk_gib=100000)

    assert "less than 100000 GiB" in result.output
    assert (result.status == 0) is check_mode
    if check_mode:
        left = json.loads((tmp_path / "left.json").read_text(encoding="utf-8"))
        assert left["facts"]["check_mode"] is True
