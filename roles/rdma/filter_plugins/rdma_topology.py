"""Filters of the role rdma: which RDMA port sits by which GPU, and which address of it NCCL should use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

CLASSES = ["PIX", "PXB", "PHB", "NODE", "SYS"]
"""From near to far, by the names of `nvidia-smi topo -m`."""

Device = Mapping[str, Any]
"""A GPU or an RDMA device of machine_facts: ``address``, ``path`` (bridges from the root port down), ``numa_node``."""

MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How a GID begins that holds an IPv4 address."""
LINK_LOCAL = "fe80:"


def distance(one: Device, other: Device) -> str:
    """Class of the way between two PCI devices.

    PIX crosses one switch, PXB several, PHB the host bridge that both hang on, NODE two host bridges of a NUMA node,
    SYS two nodes. A node that the kernel does not know counts as the same.
    """
    common = 0
    for left, right in zip(one["path"], other["path"], strict=False):
        if left != right:
            break
        common += 1
    if common:
        return "PIX" if common >= max(len(one["path"]), len(other["path"])) - 1 else "PXB"
    if _root(one) == _root(other):
        return "PHB"
    nodes = {one["numa_node"], other["numa_node"]} - {None}
    return "NODE" if len(nodes) < 2 else "SYS"


def _root(device: Device) -> str:
    """Domain and bus of the host bridge that a device hangs on."""
    first: str = [*device["path"], device["address"]][0]
    return first.rpartition(":")[0]


def gid_index(port: Mapping[str, Any], family: str) -> int | None:
    """Index of the GID to use, as for NCCL_IB_GID_INDEX; None where the port has none of the ``family``.

    Ethernet needs a RoCE v2 GID made from an address of the family, of which NCCL takes the first. InfiniBand has no
    such choice.
    """
    if port["layer"] != "Ethernet":
        return 0
    for gid in port["gids"]:
        mapped = gid["gid"].startswith(MAPPED)
        fits = mapped if family == "ipv4" else not mapped and not gid["gid"].startswith(LINK_LOCAL)
        if fits and gid["type"] == "RoCE v2":
            return int(gid["index"])
    return None


def gbit(rate: str) -> float:
    """Gbit/s of a rate as the kernel writes it, such as ``400 Gb/sec (4X NDR)``; 0 where it tells none."""
    word = rate.split(" ", 1)[0]
    try:
        return float(word)
    except ValueError:
        return 0.0


def hcas(devices: Sequence[Device], gpus: Sequence[Device], names: Sequence[str], family: str) -> list[dict[str, Any]]:
    """One entry for each port of the RDMA ``devices``, with the GPUs that have no nearer one.

    ``names`` are the devices that carry training; empty stands for all. Only those are given GPUs.
    """
    training = [device for device in devices if device["address"] and (not names or device["name"] in names)]
    nearest = {near["gpu"]: near for near in near_hcas(training, gpus)}
    entries = []
    for device in devices:
        own = [gpu for gpu, near in nearest.items() if device["name"] in near["hcas"]]
        ways = sorted((distance(device, gpu) for gpu in gpus if device["address"]), key=CLASSES.index)
        for port in device["ports"]:
            entries.append(
                {
                    "name": device["name"],
                    "port": port["port"],
                    "training": not names or device["name"] in names,
                    "address": device["address"],
                    "netdevs": device["netdevs"],
                    "gpus": own,
                    "class": nearest[own[0]]["class"] if own else ways[0] if ways else "",
                    "layer": port["layer"],
                    "state": port["state"],
                    "phys_state": port["phys_state"],
                    "rate": port["rate"],
                    "gbit": gbit(port["rate"]),
                    "gid_index": gid_index(port, family),
                }
            )
    return entries


def near_hcas(devices: Sequence[Device], gpus: Sequence[Device]) -> list[dict[str, Any]]:
    """For each GPU the names of the nearest ``devices``, and the class of the way there; empty without any."""
    entries = []
    for gpu in gpus:
        ways = [(CLASSES.index(distance(gpu, device)), device["name"]) for device in devices]
        best = min(ways)[0] if ways else None
        entries.append(
            {
                "gpu": gpu["address"],
                "hcas": [name for way, name in ways if way == best],
                "class": "" if best is None else CLASSES[best],
            }
        )
    return entries


def bridges(devices: Sequence[Device]) -> list[str]:
    """The bridges on the ways to the ``devices``."""
    return sorted({address for device in devices for address in device["path"]})


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "rdma_hcas": hcas,
            "rdma_near_hcas": near_hcas,
            "rdma_bridges": bridges,
        }
