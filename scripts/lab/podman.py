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
from scripts.lab.settings import CONTAINERS, IMAGES, LABEL, LABEL_CACHE, LABEL_SPEC, NAME

IMAGE_IN_USE = 2
"""Exit status of `podman rmi` for an image that a container stands on."""


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


def container_labels(spec: str) -> list[str]:
    """Options of `podman run` for each container of the lab; ``spec`` says what it is made from."""
    labels = {LABEL: NAME, LABEL_SPEC: spec, LABEL_CACHE: str(cache_dir())}
    return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]


def containers() -> dict[str, dict[str, Any]]:
    """The lab's containers by name, as `podman ps` describes them (``State``, ``Labels``), stopped ones included.

    By their names: a label alone would also find every other container that stands on the node image.
    """
    listed = json.loads(podman("ps", "--all", "--format", "json"))
    made_here = [one for one in listed if LABEL_SPEC in (one["Labels"] or {})]
    return {name: one for one in made_here for name in one["Names"] if name in CONTAINERS}


def killed(present: dict[str, dict[str, Any]]) -> list[str]:
    """Containers that podman takes for running and that have no process: somebody killed theirs and podman's alike.

    Podman can neither start nor stop such a container, only remove it.
    """
    return [
        name for name, one in present.items() if one["State"] == "running" and not Path(f"/proc/{one['Pid']}").exists()
    ]


def remove_containers(*names: str) -> None:
    """Kill and remove containers with their volumes that have no name; those that do not exist are passed over."""
    for name in names:
        try:
            podman("rm", "--force", "--ignore", "--volumes", "--time", "0", name)
        except command.CommandError:
            # podman 4.3 fails after the removal where a lock that it wants to free is gone.
            if name in podman("ps", "--all", "--format", "{{.Names}}").split():
                raise


def remove_volumes(*names: str) -> None:
    """Remove volumes; those that do not exist are passed over. Raises where a container still uses one."""
    for name in names:
        if name not in _volumes():
            continue
        try:
            podman("volume", "rm", name)
        except command.CommandError:
            # As above.
            if name in _volumes():
                raise


def _volumes() -> list[str]:
    return podman("volume", "ls", "--quiet").split()


def local_images() -> list[str]:
    """The lab's images in podman's store, as ``NAME:TAG``."""
    names = podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    return [name for name in names if name.startswith(f"{IMAGES}/")]


def remove_images(*references: str) -> list[str]:
    """Remove images and return those that stay because a container, which is not the lab's, stands on them.

    What is made from an image, and is not itself named here, is left alone.
    """
    kept = []
    for reference in references:
        try:
            podman("rmi", reference)
        except command.CommandError as error:
            if error.status != IMAGE_IN_USE:
                raise
            kept.append(reference)
    return kept
