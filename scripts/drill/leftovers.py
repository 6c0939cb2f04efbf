"""What drills may leave behind on a cluster: nothing, once what was removed is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scripts import command
from scripts.drill.ground import Ground
from scripts.drill.node_faults import LISTENER
from scripts.lab.podman import ask
from scripts.lab.settings import WORKERS

PREFIX = "drill-"
"""Of every namespace that a drill makes."""


def found(ground: Ground) -> list[str]:
    """Everything that is still there, one a line. Raises :class:`CommandError` where the API does not answer."""
    left = list(
        of_the_api(_listed(ground, "namespaces"), _listed(ground, "persistentvolumes"), _listed(ground, "nodes"))
    )
    return [*left, *_on_the_machines()] if ground.is_lab else left


def of_the_api(
    namespaces: list[dict[str, Any]], volumes: list[dict[str, Any]], nodes: list[dict[str, Any]]
) -> Iterator[str]:
    """Of what the API lists: namespaces, those that are Terminating too, their volumes, and closed nodes."""
    for one in namespaces:
        if one["metadata"]["name"].startswith(PREFIX):
            yield f"namespace {one['metadata']['name']} ({one['status']['phase']})"
    for one in volumes:
        if one["spec"].get("claimRef", {}).get("namespace", one["metadata"]["name"]).startswith(PREFIX):
            yield f"persistent volume {one['metadata']['name']}"
    for one in nodes:
        if one["spec"].get("unschedulable"):
            yield f"node {one['metadata']['name']} is closed to new pods"


def _listed(ground: Ground, kind: str) -> list[dict[str, Any]]:
    where = ["--kubeconfig", ground.kubeconfig] if ground.kubeconfig else []
    listed: list[dict[str, Any]] = json.loads(
        command.run([ground.kubectl, *where, "get", kind, "--output", "json"], timeout=60)
    )["items"]
    return listed


def _on_the_machines() -> Iterator[str]:
    for node in WORKERS:
        for path in (ask("exec", node.name, "sh", "-c", f"ls -d /srv/{PREFIX}* 2>/dev/null") or "").split():
            yield f"{path} on {node.name}"
        mounts = ask("exec", node.name, "cat", "/proc/mounts") or ""
        places = (line.split()[1] for line in mounts.splitlines())
        yield from (f"a mount at {place} on {node.name}" for place in places if place.startswith(f"/srv/{PREFIX}"))
        if ask("exec", node.name, "systemctl", "is-active", LISTENER) is not None:
            yield f"{LISTENER} runs on {node.name}"
