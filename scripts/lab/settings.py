"""Every name, address and port of the local cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rankzero.errors import ConfigError

NAME = "rankzero-lab"
"""Name of the cluster and of its network, and the prefix of all its containers and volumes."""

LABEL = "io.rankzero.lab"
"""On every network and volume of the lab: what `down` may remove. Not asked of containers and images, which inherit
the labels of the image that they are made from; they go by their names."""
LABEL_SPEC = "io.rankzero.lab.spec"
"""On each container of the lab: what it was made from; a node's is :func:`scripts.lab.nodes.spec_hash`."""
LABEL_CACHE = "io.rankzero.lab.cache"
"""On each container of the lab: the cache folder whose files it mounts."""
IMAGES = f"localhost/{NAME}"
"""Every image that the lab keeps in podman's store lies below this name."""

NETWORK = "10.210.0.0/24"
PODS = "10.211.0.0/16"
SERVICES = "10.212.0.0/16"
GATEWAY = "10.210.0.1"
REGISTRY_ADDRESS = "10.210.0.2"

API_PORT = 6443
REGISTRY_NODE_PORT = 5000
"""The registry's port on the lab's network; this machine sees it as :func:`registry_host`."""

GPUS_PER_WORKER = 8
STORAGE_CLASS = "shared"
SHARED_PATH = "/srv/shared"
"""The folder that all nodes share, as the nodes see it."""


@dataclass(frozen=True)
class Node:
    """One machine of the cluster. Addresses are fixed, so that a restart changes nothing."""

    name: str
    address: str
    pods: str
    """Its share of :data:`PODS`."""

    @property
    def volume(self) -> str:
        """The podman volume with the node's /var."""
        return f"{self.name}-var"


CONTROL = Node(f"{NAME}-control", "10.210.0.10", "10.211.0.0/24")
WORKERS = (
    Node(f"{NAME}-worker-1", "10.210.0.11", "10.211.1.0/24"),
    Node(f"{NAME}-worker-2", "10.210.0.12", "10.211.2.0/24"),
)
NODES = (CONTROL, *WORKERS)
REGISTRY = f"{NAME}-registry"
CONTAINERS = (REGISTRY, *(node.name for node in NODES))


def registry_port() -> int:
    """Port of this machine's loopback address that the registry listens on; ``RANKZERO_REGISTRY_PORT`` or 5001."""
    text = os.environ.get("RANKZERO_REGISTRY_PORT") or "5001"
    if not text.isdecimal() or not 1024 <= int(text) <= 65535:
        raise ConfigError(
            f"RANKZERO_REGISTRY_PORT is {text!r}", hint="set it to a free port from 1024 to 65535, or leave it unset"
        )
    return int(text)


def registry_host() -> str:
    """How this machine and the nodes alike name the registry in image references."""
    return f"localhost:{registry_port()}"
