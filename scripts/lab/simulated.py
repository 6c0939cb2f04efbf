"""Nodes that are not there: KWOK plays the kubelets of hundreds of them, so that the control plane's work is real."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankzero import contract
from rankzero.errors import ClusterError
from scripts import command
from scripts.cache import cache_dir
from scripts.lab import kube, programs
from scripts.lab.kube import kubectl
from scripts.stages import Stages

FAMILY = "kwok"
MODULE = "sigs.k8s.io/kwok"
STAGES = "kustomize/stage"
"""Folder of the module with what its kubelets do; ``BEHAVIOUR`` are those files of it that are used here."""
BEHAVIOUR = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
LABEL = "rankzero.io/simulated"
"""On each of these nodes, whose taint is of the same name, and on each namespace whose pods are for them."""
SELECTOR = f"{LABEL}=true"
TOLERATION = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}
POD_ADDRESSES = "10.213.0.1/16"
"""Of pods that nobody reaches; beside what the lab uses."""
CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", contract.GPU_RESOURCE: "8"}
LEASE_SECONDS = 120
"""KWOK renews a node's lease four times in it: within the 50 s after which Kubernetes takes a node for lost."""
READY_WITHIN = 300.0
STOPS_WITHIN = 10.0
"""Seconds, both."""
POLL = 1.0
GONE_WITHIN = "300s"


class Kubelets:
    """KWOK's process, which plays them all."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def check(self) -> None:
        """Raises :class:`ClusterError` once it has ended: whoever waits for a simulated node or pod waits in vain."""
        if (status := self._process.poll()) is not None:
            last = self._log.read_text(encoding="utf-8").splitlines()[-3:]
            raise ClusterError(f"KWOK has ended with status {status}: {' '.join(last)}", hint=f"read {self._log}")


@contextmanager
def nodes(count: int, stages: Stages) -> Iterator[Kubelets]:
    """Have ``count`` of them ready, and none afterwards. Builds KWOK where that has not been done.

    What a killed run has left is removed first; its KWOK has died with it.
    """
    build(stages)
    with stages("Removing what an earlier run has left"):
        remove()
    log = cache_dir("logs") / "kwok.log"
    with log.open("wb") as out, subprocess.Popen(_command(), stdout=out, stderr=out) as process:
        kubelets = Kubelets(process, log)
        try:
            with stages(f"{count} simulated nodes"):
                kubectl("create", "--filename", "-", stdin=json.dumps(objects(count)))
                _wait_until_ready(count, kubelets)
            yield kubelets
        finally:
            try:
                with stages("Removing the simulated nodes"):
                    remove()
            finally:
                _stop(process)


def build(stages: Stages) -> None:
    """Compile KWOK, and keep its stages, where that has not been done: minutes."""
    if not programs.folder(FAMILY).is_dir():
        with stages(f"KWOK {programs.module_version(FAMILY, MODULE)}: program"):
            programs.build(FAMILY, {MODULE: STAGES})
        programs.remove_build_caches()


@contextmanager
def namespace(name: str) -> Iterator[None]:
    """A namespace for pods on simulated nodes; :func:`remove` knows it by its label."""
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, SELECTOR)
    try:
        yield
    finally:
        kubectl("delete", "namespace", name, "--timeout", GONE_WITHIN)


def remove() -> None:
    """Take out all simulated nodes and the namespaces for them; needs no KWOK, and nothing need be there."""
    named = kubectl("get", "namespaces", "--selector", SELECTOR, "--output", "jsonpath={.items[*].metadata.name}")
    kubectl("delete", "namespaces", "--selector", SELECTOR, "--wait=false")
    for name in named.split():
        # No kubelet is left that would say that they have ended.
        kubectl("--namespace", name, "delete", "pods", "--all", "--force", "--grace-period=0")
    kubectl("wait", "--for=delete", "namespaces", "--selector", SELECTOR, "--timeout", GONE_WITHIN)
    # Nothing holds a node back; kubectl would look at each again, for minutes.
    kubectl("delete", "nodes", "--selector", SELECTOR, "--wait=false")


def _command() -> list[str]:
    stages = programs.folder(FAMILY) / STAGES
    return command.tied(
        [
            programs.program(FAMILY, "kwok"),
            *("--kubeconfig", kube.kubeconfig_path()),
            *("--manage-nodes-with-label-selector", SELECTOR),
            *("--cidr", POD_ADDRESSES),
            *("--node-lease-duration-seconds", str(LEASE_SECONDS)),
            *(word for file in BEHAVIOUR for word in ("--config", stages / file)),
        ]
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()


def _wait_until_ready(count: int, kubelets: Kubelets) -> None:
    query = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    deadline = time.monotonic() + READY_WITHIN
    while True:
        kubelets.check()
        ready = kubectl("get", "nodes", "--selector", SELECTOR, "--output", f"jsonpath={query}").split().count("True")
        if ready == count:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"{ready} of {count} simulated nodes were ready within {READY_WITHIN:g} s")
        time.sleep(POLL)


def objects(count: int) -> dict[str, Any]:
    """So many of them, as a List."""
    return {"apiVersion": "v1", "kind": "List", "items": [_node(f"simulated-{index:04d}") for index in range(count)]}


def _node(name: str) -> dict[str, Any]:
    """Without the label of an operating system, so that no DaemonSet of the cluster's own goes there."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
        "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
    }
