"""``python -m scripts.molecule [COMMAND ...]``: run molecule on the lab's node image; without a command, `test`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts.cache import REPO
from scripts.lab.host import podman_env
from scripts.lab.node_image import build_node_image, node_image
from scripts.stages import Stages

SCENARIO = "host_tuning"


def main(arguments: list[str] | None = None) -> int:
    """Molecule's exit status."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or ["test"]
    try:
        with Stages()("node image"):
            build_node_image()
    except RankzeroError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    programs = Path(sys.executable).parent
    # molecule looks for Ansible's programs on the PATH, not beside itself.
    environment = {
        **os.environ,
        **podman_env(),
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        "RANKZERO_NODE_IMAGE": node_image(),
    }
    words = [str(programs / "molecule"), command, "--scenario-name", SCENARIO, *rest]
    return subprocess.run(words, cwd=REPO, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
