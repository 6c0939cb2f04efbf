"""Disturbances from below: on the machines of the local cluster, which are containers here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from rankzero.errors import ClusterError
from scripts.drill.scene import Scene
from scripts.lab import kube, nodes
from scripts.lab.podman import execute, podman
from scripts.lab.settings import WORKERS, Node

CUT_FOR = 10.0
"""Seconds: below launch.heartbeatTimeout."""
DROP = ("-j", "DROP")


def node_of(scene: Scene, rank: int) -> Node:
    """The machine that a pod runs on."""
    name = scene.node_of(rank)
    return next(node for node in WORKERS if node.name == name)


def process_of(scene: Scene, rank: int) -> tuple[Node, str]:
    """The machine of a pod, and the pid of the pod's PID 1 on it."""
    node = node_of(scene, rank)
    labels = {"io.kubernetes.pod.namespace": scene.release.namespace, "io.kubernetes.pod.name": scene.pod(rank)}
    filters = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    found = execute(node.name, "crictl", "ps", "--quiet", *filters).split()
    if len(found) != 1:
        raise ClusterError(f"{node.name} runs {len(found)} containers of {scene.pod(rank)}", hint="look with crictl ps")
    described: dict[str, Any] = json.loads(execute(node.name, "crictl", "inspect", found[0]))
    return node, str(described["info"]["pid"])


def kill_launcher(rank: int) -> Callable[[Scene], None]:
    """SIGKILL to PID 1 of a pod, which only its node can send; the container ends and is started again."""

    def strike(scene: Scene) -> None:
        node, pid = process_of(scene, rank)
        scene.strike_now()
        execute(node.name, "kill", "-KILL", pid)

    return strike


def cut_network(rank: int, seconds: float | None) -> Callable[[Scene], None]:
    """Drop every packet to and from a pod, for some seconds or (None) for good."""

    def strike(scene: Scene) -> None:
        node, pid = process_of(scene, rank)
        scene.strike_now()
        _each_direction(node, pid, "-I")
        if seconds is None:
            return
        mend = scene.later(lambda: _each_direction(node, pid, "-D"))
        time.sleep(seconds)
        mend()
        scene.over_now()

    return strike


def stop_node(scene: Scene) -> None:
    """The machine of pod 1 loses power, and comes back when its pod counts as lost."""
    node = node_of(scene, 1)
    bring_back = scene.later(lambda: _bring_back(node))
    podman("stop", "--time", "0", node.name)
    scene.wait_until(lambda: scene.group().get("absent") == [1], what="the pod of the stopped node to be missed")
    scene.over_now()
    bring_back()


def _each_direction(node: Node, pid: str, action: str) -> None:
    for chain in ("INPUT", "OUTPUT"):
        execute(node.name, "nsenter", "--target", pid, "--net", "iptables", action, chain, *DROP)


def _bring_back(node: Node) -> None:
    nodes.start(node)
    kube.wait_for_kubelet(node)
