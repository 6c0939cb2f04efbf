"""The local cluster, up and checked once a session, and a namespace of its own for each test."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from scripts.lab import cluster, images, kube
from scripts.lab.settings import Node
from scripts.stages import Stages

WAIT = "--timeout=200s"
"""For `kubectl wait` and its like: two pods import PyTorch on two cores that have other work."""


@dataclass(frozen=True)
class Namespace:
    """kubectl bound to one namespace of the cluster."""

    name: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl here; raises :class:`~scripts.command.CommandError` when it fails."""
        return kube.kubectl("--namespace", self.name, *arguments, stdin=stdin, timeout=300)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        bundle = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename", "-", stdin=json.dumps(bundle))

    def run(self, name: str, command: str | list[str], **spec: Any) -> str:
        """Run a :func:`pod` to its end and return its log."""
        self.apply(pod(name, command, **spec))
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", WAIT)
        return self.kubectl("logs", name)


@pytest.fixture(scope="session")
def lab() -> None:
    """The cluster, brought up or repaired where it is not running."""
    cluster.up(Stages())


@pytest.fixture
def namespace(lab: None) -> Iterator[Namespace]:  # noqa: ARG001
    """An empty namespace, removed afterwards."""
    own = Namespace(f"test-{uuid.uuid4().hex[:8]}")
    kube.kubectl("create", "namespace", own.name)
    try:
        yield own
    finally:
        kube.kubectl("delete", "namespace", own.name, "--wait=false")
        # The next test must not meet this one's pods on a node; what else the namespace holds disturbs nobody.
        own.kubectl("wait", "--for=delete", "pod", "--all", WAIT)


def pod(name: str, command: str | list[str], **spec: Any) -> dict[str, Any]:
    """A pod of the node image that runs a command, or a shell script, once.

    ``spec`` is added to the pod's spec, and what it has as ``container`` to the container's.
    """
    container = {
        "name": "main",
        "image": images.toolbox_reference(),
        "command": ["sh", "-euc", command] if isinstance(command, str) else command,
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def on(node: Node) -> dict[str, Any]:
    """The part of a pod's spec that puts it on one node."""
    return {"nodeSelector": {"kubernetes.io/hostname": node.name}}
