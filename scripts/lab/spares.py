"""Machines beside the cluster's, for measurements and tests: systemd, a real containerd, a stand-in for the kubelet."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rankzero.errors import RankzeroError
from scripts.cache import REPO
from scripts.lab import kernel, nodes, programs
from scripts.lab.cluster import build_node_image
from scripts.lab.podman import ask, execute, podman, remove_containers
from scripts.stages import Stages

LAB = REPO / "playbooks/inventory/lab.yml"
PREFIX = "rankzero-spare"
BOOTED_WITHIN = 120.0
"""Seconds, for all of them."""
KUBELET = {
    "/etc/systemd/system/kubelet.service": "[Service]\nExecStart=/bin/sleep infinity\n",
    # As the lab's: its machine has cgroup v1.
    "/var/lib/kubelet/config.yaml": "failCgroupV1: false\n",
}
"""Mock: a kubelet needs a cluster to join, and the roles only look at its unit, files and process here."""


@contextmanager
def machines(amount: int, stages: Stages) -> Iterator[list[str]]:
    """Names of ``amount`` running machines, which are removed in the end, the kernel's settings put back."""
    names = [f"{PREFIX}-{number:02}" for number in range(1, amount + 1)]
    image = build_node_image(stages)
    with kernel.unchanged():
        remove_containers(*names)
        try:
            with stages(f"Starting {amount} machines"):
                for name in names:
                    podman("run", "--detach", *_arguments(name), image, "/sbin/init")
                for name in names:
                    _wait_until_booted(name)
                    _give_kubelet(name)
            yield names
        finally:
            remove_containers(*names)


def inventory(names: Sequence[str], kubeconfig: str, variables: dict[str, Any]) -> str:
    """The inventory of the machines, which are reached as the lab's are."""
    lab = yaml.safe_load(LAB.read_text(encoding="utf-8"))["training_nodes"]["vars"]
    reached = {name: value for name, value in lab.items() if name.startswith("ansible_")}
    given = {"machine_kubeconfig": kubeconfig, **variables}
    return yaml.safe_dump({"training_nodes": {"hosts": {name: {} for name in names}, "vars": {**reached, **given}}})


def _arguments(name: str) -> list[str]:
    """`podman run` as for a node of the lab, without its network and with a /var of the container's own."""
    mounts = [
        f"{programs.program(family, program)}:/usr/local/bin/{program}:ro"
        for family, family_programs in nodes.PROGRAMS.items()
        for program in family_programs
    ]
    return [
        *("--name", name, "--hostname", name),
        *("--privileged", "--cgroupns=private", "--systemd=false", "--env", "container=podman"),
        *("--stop-signal", "SIGRTMIN+3", "--tmpfs", "/run", "--tmpfs", "/tmp"),  # noqa: S108
        *(word for mount in mounts for word in ("--volume", mount)),
        *("--volume", "/var/lib/containerd"),  # overlayfs cannot stand on the container's own
    ]


def _wait_until_booted(name: str) -> None:
    deadline = time.monotonic() + BOOTED_WITHIN
    while (ask("exec", name, "systemctl", "is-active", "containerd") or "").strip() != "active":
        if time.monotonic() > deadline:
            raise RankzeroError(f"{name} has no containerd after {BOOTED_WITHIN:g} s", hint=f"podman logs {name}")
        time.sleep(0.2)


def _give_kubelet(name: str) -> None:
    execute(name, "rm", "-rf", "/etc/systemd/system/kubelet.service.d")
    for path, text in KUBELET.items():
        execute(name, "sh", "-c", f"mkdir -p {Path(path).parent} && cat > {path}", stdin=text)
    execute(name, "systemctl", "daemon-reload")
    execute(name, "systemctl", "restart", "kubelet")
