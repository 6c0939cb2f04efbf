"""The module that reads a node, as Ansible runs it with the role's own parts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from scripts import command
from scripts.cache import REPO

DEFINED = REPO / "roles/machine/library/machine_read.py"


def test_one_call_reads_this_machine_and_changes_nothing() -> None:
    result = read()

    assert result["changed"] is False
    assert result["memory_mib"] > 0
    assert [cpu["cpu"] for cpu in result["cpus"]["cpus"]] == result["cpus"]["online"]
    assert "lo" in {nic["name"] for nic in result["nics"]}


def read() -> dict[str, Any]:
    """The facts of this machine."""
    output = command.run(
        [
            *(Path(sys.executable).parent / "ansible", "localhost", "--connection", "local", "--one-line"),
            *("--playbook-dir", REPO / "roles/machine", "--module-name", "machine_read"),
            *("--extra-vars", f"ansible_python_interpreter={sys.executable}"),
        ],
        cwd=REPO,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_MODULE_UTILS": str(REPO / "roles/machine/module_utils")},
    )
    result: dict[str, Any] = json.loads(output.partition("=>")[2])
    return result


def test_every_fact_is_described() -> None:
    described = {key for key in read() if key not in ("changed", "failed", "invocation", "ansible_facts")}

    assert described <= set(documented()) | {"virtual_machine", "smi_problem"}


def documented() -> dict[str, Any]:
    """The module's RETURN."""
    text = DEFINED.read_text(encoding="utf-8").split('RETURN = r"""')[1].split('"""')[0]
    result: dict[str, Any] = yaml.safe_load(text)
    return result
