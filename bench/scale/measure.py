"""One release on simulated nodes: how long until it is whole, and what that asks of the API."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.scale.counted import Counter
from rankzero import contract
from rankzero.errors import ClusterError
from scripts import command
from scripts.cache import REPO
from scripts.lab import kube, programs, simulated
from scripts.lab.kube import kubectl
from scripts.lab.simulated import Kubelets

NAME = "scale"
WITHIN = 600.0
POLL = 1.0
RENDERINGS = 3
PODS = f"{contract.LABEL_NAME}={contract.APP_NAME},{contract.LABEL_INSTANCE}={NAME}"


@dataclass(frozen=True)
class Measured:
    """Seconds from ``helm install``, and requests to the API by command."""

    pods: int
    render_s: float
    install_s: float
    bound_s: float
    endpoints_s: float
    status_s: float
    install_requests: int
    status_requests: int
    uninstall_requests: int


def release(namespace: str, pods: int, counter: Counter, kubelets: Kubelets) -> Measured:
    """Install a release of ``pods``, wait until it is whole, ask for its status and remove it.

    Raises :class:`ClusterError` where it is not whole within :data:`WITHIN` seconds, or KWOK has ended.
    """

    def seconds_until(condition: Callable[[], bool], what: str) -> float:
        """Since ``began``."""
        deadline = time.monotonic() + WITHIN
        while not condition():
            kubelets.check()
            if time.monotonic() > deadline:
                raise ClusterError(f"not within {WITHIN:g} s: {what}", hint=f"see {kube.kubeconfig_path()}")
            time.sleep(POLL)
        return time.monotonic() - began

    values = json.dumps(_values(pods))
    where = ["--namespace", namespace]
    render_s = min(_timed(lambda: _helm("template", NAME, *where, values=values)) for _ in range(RENDERINGS))
    counter.requests()
    began = time.monotonic()
    _helm("install", NAME, *where, values=values, counter=counter)
    install_s, install_requests = time.monotonic() - began, counter.requests()
    bound_s = seconds_until(lambda: _bound(namespace) == pods, f"{pods} pods that are bound")
    endpoints_s = seconds_until(lambda: _addresses(namespace) == pods, f"{pods} addresses in the Service")
    status_s = _timed(lambda: _status(namespace, counter))
    status_requests = counter.requests()
    _helm("uninstall", NAME, *where, counter=counter)
    uninstall_requests = counter.requests()
    seconds_until(lambda: not kubectl(*_pods(namespace), "--output", "name"), "the pods are gone")
    return Measured(
        pods=pods,
        render_s=round(render_s, 2),
        install_s=round(install_s, 2),
        bound_s=round(bound_s, 2),
        endpoints_s=round(endpoints_s, 2),
        status_s=round(status_s, 2),
        install_requests=install_requests,
        status_requests=status_requests,
        uninstall_requests=uninstall_requests,
    )


def _helm(*words: str, values: str = "", counter: Counter | None = None) -> None:
    """Without what an earlier call has kept of the API's kinds, so that each asks alike."""
    where = ["--kubeconfig", str(counter.kubeconfig)] if counter else []
    given = ["charts/rankzero", "--values", "-"] if values else []
    with tempfile.TemporaryDirectory() as cache:
        command.run(
            [programs.program("helm", "helm"), *words, *given, *where],
            cwd=REPO,
            stdin=values,
            env={"KUBECACHEDIR": cache},
        )


def _values(pods: int) -> dict[str, Any]:
    return {
        "image": {"repository": "registry.example.com/rankzero/trainer", "tag": "0"},
        "nodes": pods,
        "resources": {"gpus": 8},
        "launch": {"script": "/opt/rankzero/examples/mnist.py"},
        # Nothing is mounted; a claim would want a provisioner, whose work is not measured here.
        "checkpoints": {"nfs": {"server": "files.example.com", "path": "/"}},
        "scheduling": {
            "nodeSelector": {simulated.LABEL: "true"},
            "tolerations": [simulated.TOLERATION],
            "nodeProfile": "off",
        },
    }


def _pods(namespace: str) -> list[str]:
    return ["--namespace", namespace, "get", "pods", "--selector", PODS]


def _bound(namespace: str) -> int:
    nodes = kubectl(*_pods(namespace), "--output", "jsonpath={.items[*].spec.nodeName}").split()
    if len(set(nodes)) != len(nodes):
        raise ClusterError("two pods of the release are on one node")
    return len(nodes)


def _addresses(namespace: str) -> int:
    """Of all slices of the Service."""
    slices = kubectl(
        *("--namespace", namespace, "get", "endpointslices", "--selector", f"kubernetes.io/service-name={NAME}"),
        *("--output", "jsonpath={.items[*].endpoints[*].addresses[*]}"),
    )
    return len(set(slices.split()))


def _status(namespace: str, counter: Counter) -> None:
    words = ["-m", "rankzero.cli", "status", NAME, "--namespace", namespace, "--output", "json"]
    done = subprocess.run(
        [sys.executable, *words],
        env={"KUBECONFIG": str(counter.kubeconfig), "PYTHONPATH": str(REPO / "trainer")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"`rankzero status` ended with {done.returncode}: {done.stderr}")


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
