"""Network interfaces, from /sys and `ip`, and the ports that the node keeps for others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from . import files

NET = "sys/class/net"
LOOPBACK, INFINIBAND = 772, 32
"""Kinds of hardware, as linux/if_arp.h numbers them."""
KINDS = ("bond", "bridge", "vlan", "veth")
LISTEN = "0A"
"""TCP_LISTEN, as /proc/net/tcp writes it."""

ADDRESSES = ("ip", "-json", "-details", "address", "show")
"""The program whose output :func:`nics` is given."""


def nics(root: Path, addresses: str, rdma: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All interfaces by name. ``addresses`` is what :data:`ADDRESSES` prints, empty where it did not run."""
    told = {link["ifname"]: link for link in _parse(addresses)}
    return [
        _nic(folder, told.get(folder.name, {}), rdma)
        for folder in files.entries(root / NET)
        if (folder / "ifindex").exists()  # bonding_masters is a file among the folders
    ]


def _parse(addresses: str) -> list[dict[str, Any]]:
    try:
        links: list[dict[str, Any]] = json.loads(addresses or "[]")
    except ValueError:
        return []
    return [link for link in links if "ifname" in link]


def _nic(folder: Path, link: dict[str, Any], rdma: list[dict[str, Any]]) -> dict[str, Any]:
    pci = files.pci_path(folder / "device") if (folder / "device").exists() else []
    speed = files.number(folder / "speed")
    return {
        "name": folder.name,
        "kind": _kind(folder, link),
        "driver": files.link_name(folder / "device/driver"),
        "mac": files.text(folder / "address"),
        "mtu": files.number(folder / "mtu") or 0,
        # -1, or the number that is -1 in 32 bits, from drivers that do not know
        "speed_mbit": speed if speed is not None and 0 < speed < 2**31 else None,
        "up": _is_up(folder),
        "master": files.link_name(folder / "master") or "",
        "address": pci[-1] if pci else None,
        "numa_node": files.node_number(folder / "device/numa_node") if pci else None,
        "path": pci[:-1],
        "ipv4": _addresses(link, "inet"),
        "ipv6": _addresses(link, "inet6"),
        "rdma": [device["name"] for device in rdma if folder.name in device["netdevs"]],
    }


def _kind(folder: Path, link: dict[str, Any]) -> str:
    if files.number(folder / "type") == LOOPBACK:
        return "loopback"
    if (folder / "device").exists():
        return "physical"
    told = link.get("linkinfo", {}).get("info_kind", "")
    if told in KINDS:
        return str(told)
    return next(
        (kind for kind, mark in (("bond", "bonding"), ("bridge", "bridge")) if (folder / mark).is_dir()), "virtual"
    )


def _is_up(folder: Path) -> bool:
    """Whether packets can pass. Drivers that do not follow their link's state say ``unknown``."""
    state = files.text(folder / "operstate")
    return state == "up" or (state == "unknown" and files.text(folder / "carrier") == "1")


def _addresses(link: dict[str, Any], family: str) -> list[str]:
    return [
        f"{item['local']}/{item['prefixlen']}"
        for item in link.get("addr_info", [])
        if item.get("family") == family and "local" in item
    ]


def default_interface(root: Path) -> str:
    """The interface of the default route with the lowest metric, IPv4's before IPv6's; empty where there is none."""
    routes = [line.split() for line in files.text(root / "proc/net/route").splitlines()[1:]]
    defaults = [(int(words[6]), words[0]) for words in routes if len(words) > 7 and words[1] == words[7] == "0" * 8]
    if not defaults:
        routes = [line.split() for line in files.text(root / "proc/net/ipv6_route").splitlines()]
        defaults = [
            (int(words[5], 16), words[9])
            for words in routes
            if len(words) > 9 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo"
        ]
    return min(defaults)[1] if defaults else ""


def ports(root: Path) -> dict[str, Any]:
    """Ports that the kernel gives to outgoing connections, those it never gives, and those that are listened on."""
    ephemeral = [int(word) for word in files.text(root / "proc/sys/net/ipv4/ip_local_port_range").split()]
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in files.text(root / "proc/net" / table).splitlines()[1:]:
            found = re.match(r"\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]{2}) ", line)
            if found and found[2] == LISTEN:
                listening.add(int(found[1], 16))
    return {
        "ephemeral": ephemeral if len(ephemeral) == 2 else [],
        "reserved": files.text(root / "proc/sys/net/ipv4/ip_local_reserved_ports"),
        "listening": sorted(listening),
    }
