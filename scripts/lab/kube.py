"""The cluster's API as the lab uses it: kubectl with the lab's kubeconfig."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import datetime
from pathlib import Path

from rankzero.errors import ClusterError
from scripts import command
from scripts.cache import cache_dir
from scripts.lab import nodes, programs
from scripts.lab.podman import execute
from scripts.lab.settings import CONTROL, Node

API_READY_WITHIN = 120.0
NODE_READY_WITHIN = 60.0
"""Seconds, both."""


def kubeconfig_path() -> Path:
    """Where the cluster's administrator credentials are kept, readable by their owner only."""
    return cache_dir("lab") / "kubeconfig"


def kubectl(*arguments: str, stdin: str | None = None, timeout: float | None = None) -> str:
    """Run kubectl as the cluster's administrator and return its output."""
    return command.run(
        [programs.program("kubernetes", "kubectl"), "--kubeconfig", kubeconfig_path(), *arguments],
        stdin=stdin,
        timeout=timeout,
        hint="`make lab` repairs the cluster",
    )


def write_kubeconfig() -> None:
    """Copy the credentials from the control-plane node, whose address this machine reaches too."""
    text = execute(CONTROL.name, "cat", "/etc/kubernetes/admin.conf")
    path = kubeconfig_path()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    partial = path.with_name(".kubeconfig.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    partial.rename(path)


def is_api_ready() -> bool:
    """Whether the API server answers that it is ready."""
    done = subprocess.run(
        [
            programs.program("kubernetes", "kubectl"),
            *("--kubeconfig", kubeconfig_path(), "--request-timeout", "2s", "get", "--raw", "/readyz"),
        ],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def wait_for_api() -> None:
    """Wait until the API server is ready. Raises :class:`ClusterError` after :data:`API_READY_WITHIN`."""
    deadline = time.monotonic() + API_READY_WITHIN
    while not is_api_ready():
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the API server on {CONTROL.name} was not ready within {API_READY_WITHIN:g} s",
                hint=f"read `podman exec {CONTROL.name} journalctl -u kubelet`; `make lab-down lab` starts afresh",
            )
        time.sleep(0.5)


def wait_for_kubelet(node: Node) -> None:
    """Wait until the node's present kubelet has reported Ready; what an earlier one reported does not count.

    Raises :class:`ClusterError` after :data:`NODE_READY_WITHIN`.
    """
    started = nodes.kubelet_started_at(node)
    deadline = time.monotonic() + NODE_READY_WITHIN
    while not _is_ready_since(node, started):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{node.name} was not Ready within {NODE_READY_WITHIN:g} s",
                hint=f"read `podman exec {node.name} journalctl -u kubelet`; `make lab-down lab` starts afresh",
            )
        time.sleep(0.5)


def _is_ready_since(node: Node, epoch: int) -> bool:
    template = (
        '{.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}'
    )
    words = kubectl("get", "node", node.name, "--ignore-not-found", "--output", f"jsonpath={template}").split()
    return len(words) == 2 and words[0] == "True" and datetime.fromisoformat(words[1]).timestamp() >= epoch
