"""The cluster's machines: system containers, each with its own systemd, containerd and kubelet."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts.cache import cache_dir
from scripts.lab import programs
from scripts.lab.images import MIRROR
from scripts.lab.node_image import node_image
from scripts.lab.podman import (
    ask,
    container_labels,
    execute,
    podman,
    remove_containers,
    remove_volumes,
    succeeds,
)
from scripts.lab.settings import (
    GATEWAY,
    LABEL,
    NAME,
    NETWORK,
    NODES,
    PODS,
    REGISTRY_ADDRESS,
    REGISTRY_NODE_PORT,
    SHARED_PATH,
    Node,
    registry_host,
)

PROGRAMS = {
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "crictl": ("crictl",),
    "kubernetes": ("kubeadm", "kubectl", "kubelet"),
}
"""What each node finds in /usr/local/bin, mounted from the cache folder."""
SERVICES = ("containerd", "kubelet")
BOOT_UNITS = (f"{NAME}-mounts", f"{NAME}-network")
"""Run to their end at each boot."""
BOOTED_WITHIN = 60.0
"""Seconds."""


def shared_dir() -> Path:
    """The folder on this machine behind the storage class `shared`."""
    return cache_dir("lab", "shared")


def ensure_network() -> None:
    """Have the network on which every container of the lab has its fixed address."""
    if succeeds("network", "exists", NAME):
        return
    podman(
        *("network", "create", "--label", f"{LABEL}={NAME}", "--subnet", NETWORK, "--gateway", GATEWAY),
        *("--disable-dns", NAME),
    )


def files(node: Node) -> dict[str, str]:
    """The node's own settings, read at its boot: path below its folder in the cache -> content."""
    routes = [f"route replace {peer.pods} via {peer.address}\n" for peer in NODES if peer != node]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        # Pods keep their own address towards other pods; the node translates what leaves the cluster.
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    network = {"cniVersion": "1.0.0", "name": NAME, "plugins": plugins}
    return {
        "cni/10-bridge.conflist": json.dumps(network, indent=2) + "\n",
        "network/routes": "".join(routes),
        "network/nat": f"*nat\n-A POSTROUTING -s {node.pods} ! -d {PODS} -o eth0 -j MASQUERADE\nCOMMIT\n",
    }


def registry_files() -> dict[str, str]:
    """Where a node finds the images of each registry, read at each pull: path as in :func:`files` -> content."""
    mirror = f"http://{REGISTRY_ADDRESS}:{REGISTRY_NODE_PORT}"
    pull = '  capabilities = ["pull", "resolve"]\n'
    return {
        f"certs.d/{registry_host()}/hosts.toml": f'[host."{mirror}"]\n{pull}',
        f"certs.d/{MIRROR}/hosts.toml": f'[host."{mirror}/v2/{MIRROR}"]\n{pull}  override_path = true\n',
    }


def run_arguments(node: Node) -> list[str]:
    """`podman run` for the node, without its labels."""
    settings = _settings_dir(node)
    mounts = [
        f"{programs.program(family, name)}:/usr/local/bin/{name}:ro"
        for family, names in PROGRAMS.items()
        for name in names
    ]
    mounts += [
        f"{settings}/cni:/etc/cni/net.d:ro",
        f"{settings}/network:/etc/rankzero-lab:ro",
        f"{settings}/certs.d:/etc/containerd/certs.d:ro",
        f"{shared_dir()}:{SHARED_PATH}",
        f"{node.volume}:/var",
    ]
    return [
        *("--name", node.name, "--hostname", node.name, "--network", NAME, "--ip", node.address),
        # A cgroup namespace of its own is what keeps the nodes' kubelets apart. Not --systemd=always: with cgroup v1
        # podman 4.3 then starts systemd in the machine's own name=systemd hierarchy, where all nodes share units
        # and the end of one takes the others' cgroups along. What it would have set besides stands here.
        *("--privileged", "--cgroupns=private", "--systemd=false", "--env", "container=podman"),
        *("--stop-signal", "SIGRTMIN+3", "--tmpfs", "/run", "--tmpfs", "/tmp"),  # noqa: S108
        *(word for mount in mounts for word in ("--volume", mount)),
        node_image(),
        "/sbin/init",
    ]


def spec_hash(extra: str) -> str:
    """Changes with the versions and the recipe that the nodes are made from; ``extra`` is kubeadm's configuration.

    Not with the place of the cache folder or the registry's port: neither is a reason to lose a cluster.
    """
    made_from = json.dumps([[run_arguments(node), files(node)] for node in NODES] + [extra])
    return hashlib.sha256(made_from.replace(str(cache_dir()), "").encode()).hexdigest()[:12]


def write_registry_files() -> None:
    """Tell all nodes, running ones too, where images are; references with an earlier port stay good."""
    for node in NODES:
        _write(node, registry_files())


def create(node: Node, spec: str) -> None:
    """Make the node anew, without anything of an earlier container of its name, and wait until it has booted."""
    remove(node)
    _write(node, files(node))
    podman("volume", "create", "--label", f"{LABEL}={NAME}", node.volume)
    podman("run", "--detach", *container_labels(spec), *run_arguments(node))
    wait_until_booted(node)


def remove(node: Node) -> None:
    """Remove the node's container and its /var."""
    remove_containers(node.name)
    remove_volumes(node.volume)


def start(node: Node) -> None:
    """Start a stopped node; it comes back with its addresses, routes and Kubernetes membership."""
    podman("start", node.name)
    wait_until_booted(node)


def wait_until_booted(node: Node) -> None:
    """Wait until systemd has started what it should. Raises :class:`RankzeroError` when the lab's units failed."""
    deadline = time.monotonic() + BOOTED_WITHIN
    # "degraded" is a boot that is over: which unit failed, and whether it matters, is asked below.
    while _properties(node, "SystemState") not in (["running"], ["degraded"]):
        if time.monotonic() > deadline:
            raise RankzeroError(
                f"systemd in {node.name} was not up within {BOOTED_WITHIN:g} s",
                hint=f"read `podman logs {node.name}`; `make lab-down lab` starts afresh",
            )
        time.sleep(0.2)
    if _properties(node, "ActiveState", *BOOT_UNITS) != ["active"] * len(BOOT_UNITS):
        raise RankzeroError(
            f"{node.name} has booted without {' or '.join(BOOT_UNITS)}",
            hint=f"read `podman exec {node.name} journalctl -b -u '{NAME}-*'`; `make lab-down lab` starts afresh",
        )


def restart_dead_services(node: Node) -> list[str]:
    """Start containerd and the kubelet where they do not run; returns the names of those that did not."""
    states = _properties(node, "ActiveState", *SERVICES)
    dead = [name for name, state in zip(SERVICES, states, strict=True) if state not in ("active", "activating")]
    if dead:
        execute(node.name, "systemctl", "reset-failed", *dead)
        execute(node.name, "systemctl", "start", *dead)
    return dead


def kubelet_started_at(node: Node) -> int:
    """When the present kubelet process was started, in seconds since the epoch."""
    words = ("systemctl", "show", "--timestamp=unix", "--property=ActiveEnterTimestamp", "--value", "kubelet")
    return int(execute(node.name, *words).strip().removeprefix("@"))


def _properties(node: Node, name: str, *units: str) -> list[str]:
    """The systemd property of the manager or of each unit; empty while systemd does not answer yet."""
    return (ask("exec", node.name, "systemctl", "show", f"--property={name}", "--value", *units) or "").split()


def _write(node: Node, contents: dict[str, str]) -> None:
    for name, content in contents.items():
        path = _settings_dir(node) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _settings_dir(node: Node) -> Path:
    return cache_dir("lab", "nodes", node.name)
