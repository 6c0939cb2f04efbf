"""What a command finds when it runs for the lab: its programs, its kubeconfig, its podman settings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts.lab import kube, programs
from scripts.lab.host import podman_env

FAMILIES = ("kubernetes", "helm", "crictl")


def environment() -> dict[str, str]:
    """The present environment with the lab's kubectl, helm and crictl and this Python's tools first on the PATH."""
    folders = [str(Path(sys.executable).parent), *(str(programs.folder(family)) for family in FAMILIES)]
    return {
        **os.environ,
        **podman_env(),
        "KUBECONFIG": str(kube.kubeconfig_path()),
        "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
    }


def replace_process(words: Sequence[str]) -> None:
    """Become the command ``words``, as `env` does. Raises :class:`RankzeroError` when there is no such program."""
    variables = environment()
    program = shutil.which(words[0], path=variables["PATH"])
    if not program:
        raise RankzeroError(f"{words[0]} was not found", hint="`make lab` builds the cluster's programs")
    os.execve(program, list(words), variables)  # noqa: S606 (no shell is the point)
