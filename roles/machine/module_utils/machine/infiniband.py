"""RDMA devices, InfiniBand's and RoCE's, from /sys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import files

DEVICES = "sys/class/infiniband"


def devices(root: Path) -> list[dict[str, Any]]:
    """The RDMA devices by name, with their ports and the GIDs that are in use."""
    return [_device(folder) for folder in files.entries(root / DEVICES)]


def _device(folder: Path) -> dict[str, Any]:
    path = files.pci_path(folder / "device")
    return {
        "name": folder.name,
        "netdevs": [net.name for net in files.entries(folder / "device/net")],
        "address": path[-1] if path else None,
        "numa_node": files.node_number(folder / "device/numa_node"),
        "path": path[:-1],
        "ports": [_port(port) for port in files.entries(folder / "ports")],
    }


def _port(folder: Path) -> dict[str, Any]:
    return {
        "port": int(folder.name),
        # The kernel writes "4: ACTIVE".
        "state": files.text(folder / "state").partition(": ")[2],
        "phys_state": files.text(folder / "phys_state").partition(": ")[2],
        "layer": files.text(folder / "link_layer"),
        "rate": files.text(folder / "rate"),
        "gids": _gids(folder),
    }


def _gids(port: Path) -> list[dict[str, Any]]:
    gids = []
    for entry in sorted(files.entries(port / "gids"), key=lambda path: int(path.name)):
        gid = files.text(entry)
        if gid.strip("0:"):
            gids.append(
                {"index": int(entry.name), "gid": gid, "type": files.text(port / "gid_attrs/types" / entry.name)}
            )
    return gids
