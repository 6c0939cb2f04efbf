"""Filter of the role container_runtime: whether a node is drained, by what the cluster says of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

GPUS = "nvidia.com/"
"""How the names of all resources begin by which pods are given NVIDIA's GPUs."""
NAMED = 3


def undrained(results: Sequence[Mapping[str, Any]]) -> str:
    """Why a node is not drained, empty where it is; ``results`` of two reads are its Node object and its pods.

    Pods that only watch GPUs, such as the device plugin's, ask for none and are not counted.
    """
    nodes, pods = (result.get("resources") for result in results)
    if not nodes or pods is None:
        return "the cluster does not tell whether the node is drained"
    if not nodes[0]["spec"].get("unschedulable", False):
        return "the node is not cordoned"
    computing = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods if _has_gpus(pod)]
    rest = len(computing) - NAMED
    named = ", ".join(computing[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"GPUs are given to {named}" if computing else ""


def _has_gpus(pod: Mapping[str, Any]) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return not ended and any(resource.startswith(GPUS) for resource in _limits(pod))


def _limits(pod: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("initContainers", "containers"):
        for container in pod["spec"].get(kind) or []:
            yield from (container.get("resources") or {}).get("limits") or {}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filter by the name that the role's YAML uses."""
        return {"container_runtime_undrained": undrained}
