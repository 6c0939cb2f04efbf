"""`python -m bench.nodes`: how long site.yml takes where nothing is to be changed, and check.yml, over 10 machines.

Writes bench/results/nodes.json. Give it a quiet machine: the 10 machines are containers on it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench import result_file
from bench.nodes import summary
from bench.nodes.measure import Run, run
from scripts.entry import guarded
from scripts.lab.spares import inventory, machines
from scripts.stages import Stages

NODES, FEWEST, BETWEEN = 10, 2, (4, 7)
VARIABLES = {"container_runtime_limit_beyond_host": "lower", "cpu_manager_policy": "none"}
"""A container cannot raise limits beyond those of its host, and the stand-in for the kubelet has no CPU manager."""
LEAVE = ("-e", "container_runtime_restart_ok=true")
SERIALLY = ("-e", "site_serial=1")


def main() -> int:
    """Returns 0 where every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.nodes", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help=f"machines; {NODES}, and nothing is written for fewer")
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    stages = Stages(console)
    with machines(options.nodes, stages) as names, tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "inventory.yml"
        hosts.write_text(inventory(names, "", VARIABLES), encoding="utf-8")
        with stages("Preparing them once"):
            run(summary.SITE, hosts, options.nodes, options.nodes, *LEAVE, *("-e", "site_serial=100%"))
        runs = [_told(console, run(*what)) for what in _runs(hosts, options.nodes)]
        serial = _told(console, run(summary.SITE, hosts, options.nodes, options.nodes, *LEAVE, *SERIALLY))
    found = {
        "machine": result_file.machine(),
        "settings": {"image": "the local cluster's node image", "nodes": options.nodes, "variables": VARIABLES},
        **summary.document(runs, serial.seconds / serial.nodes),
        "serially": serial.document(),
    }
    if options.nodes == NODES:
        console.print(f"written: {result_file.write('nodes', found)}")
    for name, target in found["targets"].items():
        console.print(f"{name}: {target['value']}, target {target['target']}: {'met' if target['met'] else 'missed'}")
    return 0 if all(target["met"] for target in found["targets"].values()) else 1


def _runs(hosts: Path, nodes: int) -> list[tuple[str, Path, int, int]]:
    sizes = [FEWEST, *(size for size in BETWEEN if size < nodes), nodes]
    return [
        *((summary.SITE, hosts, size, nodes) for size in sizes),
        (summary.SITE, hosts, nodes, nodes // 2),
        (summary.CHECK, hosts, nodes, nodes),
    ]


def _told(console: Console, done: Run) -> Run:
    console.print(
        f"  {done.playbook}.yml, {done.nodes} nodes, {done.forks} forks: {done.seconds:.1f} s,"
        f" {done.controller_cpu_seconds:.1f} s of processor, {done.tasks} tasks, {done.changed} changed"
    )
    return done


if __name__ == "__main__":
    sys.exit(guarded(main))
