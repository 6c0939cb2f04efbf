"""``python -m scripts.molecule [COMMAND ...]``: run molecule on the lab's node image; without a command, `test`."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from scripts.cache import REPO
from scripts.entry import guarded
from scripts.lab import cluster, kernel
from scripts.lab.host import podman_env
from scripts.stages import Stages

SCENARIO = "host_tuning"


def main(arguments: list[str] | None = None) -> int:
    """Molecule's exit status."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or ["test"]
    image = cluster.build_node_image(Stages())
    programs = Path(sys.executable).parent
    # molecule looks for Ansible's programs on the PATH, not beside itself.
    environment = {
        **os.environ,
        **podman_env(),
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        "RANKZERO_NODE_IMAGE": image,
    }
    words = [str(programs / "molecule"), command, "--scenario-name", SCENARIO, *rest]
    # Other commands, and options such as --destroy never, leave nodes behind, whose settings then must hold.
    with kernel.unchanged() if command == "test" and not rest else nullcontext():
        return subprocess.run(words, cwd=REPO, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(guarded(main))
