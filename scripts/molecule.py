"""``python -m scripts.molecule [--long | --scenario NAME] [COMMAND ...]``: run molecule on the lab's node image.

Without a scenario all that are not long are run; without a command, `test`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import yaml

from bench import result_file
from rankzero.errors import ConfigError
from scripts.cache import REPO
from scripts.entry import guarded
from scripts.lab import cluster, kernel, lock, node_image, programs
from scripts.lab.host import podman_env
from scripts.stages import Stages

SCENARIOS = REPO / "molecule"
INVENTORY = REPO / "playbooks/inventory/lab.yml"
LOCK = Path("/run/rankzero-molecule.lock")
"""The nodes of the scenarios have fixed names."""
LONG = ("nvidia_driver",)
"""Scenarios that take too long for every change: part of `make test-long`."""
RESULTS = "molecule"
"""Name of the file in bench/results that keeps how the long scenarios ended."""


def scenarios() -> list[str]:
    """The names of all scenarios."""
    return sorted(file.parent.name for file in SCENARIOS.glob("*/molecule.yml"))


def ssh_arguments() -> str:
    """How Ansible's ssh reaches a node that is a container of this machine: as the lab's inventory says."""
    inventory = yaml.safe_load(INVENTORY.read_text(encoding="utf-8"))
    return str(inventory["training_nodes"]["vars"]["ansible_ssh_common_args"])


def main(arguments: list[str] | None = None) -> int:
    """Molecule's exit status; that of the first scenario that fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.molecule", description=__doc__)
    chooser = parser.add_mutually_exclusive_group()
    chooser.add_argument("--scenario", action="append", choices=scenarios(), help="may be given more than once")
    chooser.add_argument(
        "--long", action="store_true", help="those that take long, whose ends are kept in bench/results"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="molecule's command and its options")
    chosen = parser.parse_args(arguments)
    words = chosen.command or ["test"]
    names = LONG if chosen.long else chosen.scenario or [name for name in scenarios() if name not in LONG]
    if len(names) > 1 and words != ["test"]:
        raise ConfigError(f"`{' '.join(words)}` is for one scenario", hint=f"add --scenario {'|'.join(names)}")
    environment = _environment(images(names))
    with lock.held(LOCK, lambda: print("waiting for another run of molecule", file=sys.stderr)):  # noqa: T201
        for name in names:
            began = time.monotonic()
            status = _run(words, name, environment)
            if chosen.long:
                _keep(name, passed=status == 0, seconds=time.monotonic() - began)
            if status:
                return status
    return 0


def images(names: Sequence[str]) -> dict[str, str]:
    """References of the node images that the scenarios use, by the variables with which they name them."""
    references = {"RANKZERO_NODE_IMAGE": cluster.build_node_image(Stages())}
    texts = [(SCENARIOS / name / "molecule.yml").read_text(encoding="utf-8") for name in names]
    for suite in node_image.OTHER_SUITES:
        variable = f"RANKZERO_NODE_IMAGE_{suite.upper()}"
        if any(variable in text for text in texts):
            references[variable] = cluster.build_node_image(Stages(), suite)
    return references


def _environment(references: Mapping[str, str]) -> dict[str, str]:
    path = os.environ.get("PATH", os.defpath)
    return {
        **os.environ,
        **podman_env(),
        # molecule looks for Ansible's programs on the PATH, not beside itself.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), path]),
        "ANSIBLE_SSH_COMMON_ARGS": ssh_arguments(),
        **references,
        # The lab's compiled programs, for the nodes that need a real containerd or kubelet.
        **{
            f"RANKZERO_{family.upper()}": str(programs.folder(family))
            for family in ("containerd", "crictl", "kubernetes")
        },
    }


def _run(words: Sequence[str], scenario: str, environment: dict[str, str]) -> int:
    command = [str(Path(sys.executable).parent / "molecule"), words[0], "--scenario-name", scenario, *words[1:]]
    # Other commands, and options such as --destroy never, leave nodes behind, whose settings then must hold.
    with kernel.unchanged() if list(words) == ["test"] else nullcontext():
        return subprocess.run(command, cwd=REPO, env=environment, check=False).returncode


def _keep(scenario: str, *, passed: bool, seconds: float) -> None:
    kept = result_file.read(RESULTS) or {}
    entry = {"passed": passed, "seconds": round(seconds, 1), "machine": result_file.machine()}
    result_file.write(RESULTS, {**kept, "scenarios": {**kept.get("scenarios", {}), scenario: entry}, "targets": {}})


if __name__ == "__main__":
    sys.exit(guarded(main))
