"""The podman commands that the lab needs, with the lab's settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from scripts import command
from scripts.cache import cache_dir
from scripts.lab.host import podman_env
from scripts.lab.settings import LABEL


def podman(*arguments: str | Path, stdin: str | None = None, log: str = "", timeout: float | None = None) -> str:
    """Run podman and return its output; with ``log``, write it to that file of the log folder instead."""
    return command.run(
        ["podman", *arguments],
        env=podman_env(),
        stdin=stdin,
        log=cache_dir("logs") / log if log else None,
        timeout=timeout,
        hint="" if log else "install podman (make bootstrap), or read what podman says above",
    )


def execute(container: str, *words: str, stdin: str | None = None, log: str = "", timeout: float | None = None) -> str:
    """Run a command in a container."""
    interactive = ["-i"] if stdin is not None else []
    return podman("exec", *interactive, container, *words, stdin=stdin, log=log, timeout=timeout)


def ask(*arguments: str) -> str | None:
    """Output of a podman command that may well fail, or None when it did."""
    done = subprocess.run(
        ["podman", *arguments], env={**os.environ, **podman_env()}, capture_output=True, text=True, check=False
    )
    return None if done.returncode else done.stdout


def succeeds(*arguments: str) -> bool:
    """Whether a podman command that only asks (``image exists``, ``exec ... test``) answers yes."""
    return ask(*arguments) is not None


def containers() -> dict[str, dict[str, Any]]:
    """The lab's containers by name, as `podman ps` describes them (``State``, ``Labels``), stopped ones included."""
    listed = json.loads(podman("ps", "--all", "--filter", f"label={LABEL}", "--format", "json"))
    return {one["Names"][0]: one for one in listed}


def remove_containers(*names: str) -> None:
    """Kill and remove containers; those that do not exist are passed over."""
    for name in names:
        podman("rm", "--force", "--ignore", "--time", "0", name)


def remove_volumes(*names: str) -> None:
    """Remove volumes; those that do not exist are passed over."""
    present = podman("volume", "ls", "--quiet").split()
    for name in names:
        if name in present:
            podman("volume", "rm", "--force", name)
