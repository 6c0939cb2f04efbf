"""One run of a playbook, timed."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankzero.errors import RankzeroError
from scripts.cache import REPO
from scripts.lab.host import podman_env

RECAP = re.compile(r"^\S+ +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+) +skipped=(\d+)", re.MULTILINE)
TAIL = 4000
"""Characters of a failed run's output that are shown."""


@dataclass(frozen=True)
class Run:
    """What a run took."""

    playbook: str
    nodes: int
    forks: int
    seconds: float
    controller_cpu_seconds: float
    """Processor time of Ansible and of its ssh; the nodes' own work is not in it."""
    tasks: int
    """Over all nodes, skipped ones included."""
    changed: int

    def document(self) -> dict[str, Any]:
        """What the result file says of it."""
        return asdict(self) | {
            "seconds": round(self.seconds, 2),
            "controller_cpu_seconds": round(self.controller_cpu_seconds, 2),
        }


def run(playbook: str, inventory: Path, nodes: int, forks: int, *words: str) -> Run:
    """Run a playbook over the first ``nodes`` of the inventory. Raises :class:`RankzeroError` where it fails."""
    command: list[str | Path] = [
        *(Path(sys.executable).parent / "ansible-playbook", "-i", inventory, f"playbooks/{playbook}.yml"),
        *("--forks", str(forks), "--limit", f"training_nodes[0:{nodes - 1}]", *words),
    ]
    before, begun = _children_cpu(), time.monotonic()
    done = subprocess.run(
        command,
        cwd=REPO,
        env={**os.environ, **podman_env(), "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds, cpu = time.monotonic() - begun, _children_cpu() - before
    if done.returncode:
        raise RankzeroError(f"{playbook}.yml failed:\n{done.stdout[-TAIL:]}", hint="run it by hand")
    recap = [[int(number) for number in line] for line in RECAP.findall(done.stdout)]
    return Run(
        playbook=playbook,
        nodes=nodes,
        forks=forks,
        seconds=seconds,
        controller_cpu_seconds=cpu,
        tasks=sum(ok + skipped for ok, _, _, _, skipped in recap),
        changed=sum(changed for _, changed, *_ in recap),
    )


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
