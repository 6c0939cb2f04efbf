"""NVIDIA's devices on the PCI bus, which are there whether or not a driver is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import files

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA controller and 3D controller: without and with a display connector."""
NVSWITCH_CLASS = "0x0680"
"""Bridge of another kind, as which NVSwitches show themselves."""


def nvidia(root: Path) -> dict[str, list[dict[str, Any]]]:
    """``gpus`` and ``nvswitches`` in the order of their addresses."""
    gpus, switches = [], []
    for device in files.entries(root / "sys/bus/pci/devices"):
        if files.text(device / "vendor") != NVIDIA:
            continue
        kind = files.text(device / "class")[:6]
        if kind in GPU_CLASSES:
            gpus.append(_gpu(device))
        elif kind == NVSWITCH_CLASS:
            switches.append({"address": device.name, "device": _device_id(device)})
    return {"gpus": gpus, "nvswitches": switches}


def _gpu(device: Path) -> dict[str, Any]:
    return {
        "address": device.name,
        "device": _device_id(device),
        "driver": files.link_name(device / "driver"),
        "numa_node": files.node_number(device / "numa_node"),
        "cpus": files.number_list(files.text(device / "local_cpulist")),
        "path": files.pci_path(device)[:-1],
    }


def _device_id(device: Path) -> str:
    """Four hexadecimal digits in upper case, as NVIDIA's lists of devices write them."""
    return files.text(device / "device")[2:].upper()
