"""Runs roles on a node of the cluster, as a playbook would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.cache import REPO
from scripts.lab import kube
from scripts.lab.host import podman_env
from scripts.lab.settings import Node

KEEP = "Keep the report"
"""Name of the task that writes down what the role reports."""


@dataclass(frozen=True)
class Played:
    """How a run ended."""

    succeeded: bool
    output: str
    report: dict[str, Any]
    """The role's report, empty where it published none."""

    def changed(self) -> list[str]:
        """The tasks that have changed something, without the one that keeps the report."""
        task, found = "", []
        for line in self.output.splitlines():
            if line.startswith("TASK ["):
                task = line.partition("[")[2].partition("] *")[0]
            elif line.startswith("changed: ") and task != KEEP:
                found.append(task)
        return found


def play(folder: Path, node: Node, role: str, *points: str, options: tuple[str, ...] = (), **variables: Any) -> Played:
    """Run entry ``points`` of a role (``main`` unless named) on one node and read its report."""
    include = [
        {"name": point, "ansible.builtin.include_role": {"name": role, "tasks_from": point}}
        for point in points or ("main",)
    ]
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    keep = {
        "name": KEEP,
        "ansible.builtin.copy": {"content": f"{{{{ {role}_report | to_json }}}}", "dest": str(report)},
        "when": f"{role}_report is defined",
        "check_mode": False,
        "delegate_to": "localhost",
    }
    tasks = [{"block": include, "always": [keep]}]
    playbook = folder / "play.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": node.name, "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), "-i", "playbooks/inventory/lab.yml", playbook),
            *("--extra-vars", json.dumps({"machine_kubeconfig": str(kube.kubeconfig_path()), **variables}), *options),
        ],
        cwd=REPO,
        env={**os.environ, **podman_env()},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return Played(done.returncode == 0, done.stdout + done.stderr, found)
