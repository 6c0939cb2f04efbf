"""Lets the workers advertise GPUs that they do not have, so that the scheduler's accounting of them is real.

Kubernetes documents the way (advertise extended resources for a node): a patch of the node's status. A kubelet that
finds nothing in its device-plugins folder as it starts takes the node for a new one and sets such a count back to 0,
so every `up`, and whoever restarts a kubelet, advertises anew.
"""

from __future__ import annotations

import json

from rankzero import contract
from scripts.lab import kube
from scripts.lab.kube import kubectl
from scripts.lab.settings import GPUS_PER_WORKER, WORKERS, Node

PRESENT_LABEL = "nvidia.com/gpu.present"
"""What GPU node pools carry and the NVIDIA device plugin selects on."""


def advertise() -> None:
    """Give every worker its GPUs and the label of a GPU node."""
    for node in WORKERS:
        # A patch before the kubelet's first report would be undone by it.
        kube.wait_for_kubelet(node)
        kubectl("label", "node", node.name, f"{PRESENT_LABEL}=true", "--overwrite")
        offer(node, contract.GPU_RESOURCE, GPUS_PER_WORKER)


def offer(node: Node, resource: str, amount: int | None) -> None:
    """Let the node advertise an extended resource, or no longer (None)."""
    quantity = {resource: None if amount is None else str(amount)}
    status = {"capacity": quantity, "allocatable": quantity}
    kubectl(
        *("patch", "node", node.name, "--subresource", "status", "--type", "merge"),
        *("--patch", json.dumps({"status": status})),
    )


def advertised() -> dict[str, int]:
    """Allocatable GPUs by worker."""
    nodes = json.loads(kubectl("get", "nodes", *(node.name for node in WORKERS), "--output", "json"))["items"]
    return {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(contract.GPU_RESOURCE, "0")) for node in nodes
    }
