"""Whether this pod can use the fabric that the chart promised: RDMA devices, ports that are up, memory to lock.

Where one of them is missing NCCL goes over TCP without a word, and the run takes several times as long.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankzero.config import FabricConfig

LINK_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}
"""As the kernel writes them, by ``network.fabric.preset``."""
LEAST_LOCKED = 2**30
"""Bytes of memory that a rank must be able to lock, for the buffers that NCCL registers; systemd grants 8 MiB."""
CAP_IPC_LOCK = 14
"""Bit of the capability that lifts the limit (linux/capability.h)."""


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device."""

    device: str
    number: str
    link_layer: str
    state: str

    def __str__(self) -> str:
        return f"{self.device}:{self.number} {self.link_layer} {self.state}"


def problems(fabric: FabricConfig, root: Path = Path("/")) -> list[str]:
    """What keeps NCCL from the fabric, a sentence each; ``root`` is where /dev, /proc and /sys are."""
    if fabric.preset == "auto":
        return []
    return [*_device_problems(fabric, root), *_memory_problems(root)]


def _device_problems(fabric: FabricConfig, root: Path) -> list[str]:
    devices = _devices(root)
    if not devices:
        return [
            "this pod can open no RDMA device below /dev/infiniband: set network.fabric.resource.name to the resource "
            "by which a device plugin hands them out (`kubectl describe node` lists it)"
        ]
    named = [name.partition(":") for name in fabric.devices]
    if unknown := sorted({device for device, _, _ in named} - set(devices)):
        return [f"network.fabric.devices names {_and(unknown)}, which this pod does not have: it has {_and(devices)}"]
    ports = [
        port
        for port in _ports(root, devices)
        if not named or any(device == port.device and number in ("", port.number) for device, _, number in named)
    ]
    fitting = [port for port in ports if port.link_layer == LINK_LAYERS[fabric.preset]]
    if not fitting:
        return [f"network.fabric.preset is {fabric.preset}, and no RDMA port here is of that kind: {_and(ports)}"]
    if not any(port.state == "ACTIVE" for port in fitting):
        return [f"no port of the fabric is active: {_and(fitting)}; look at cables, switch and subnet manager"]
    return []


def _memory_problems(root: Path) -> list[str]:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_LOCKED or _may_lock(root):
        return []
    return [
        f"this pod may lock {limit // 1024} KiB of memory, too little to register NCCL's buffers: give the container "
        "runtime of the nodes LimitMEMLOCK=infinity, as the role container_runtime does"
    ]


def _devices(root: Path) -> list[str]:
    """RDMA devices that this process may open, in order."""
    verbs = root / "sys/class/infiniband_verbs"
    names = {
        (entry / "ibdev").read_text(encoding="ascii").strip()
        for entry in (verbs.iterdir() if verbs.is_dir() else ())
        if (entry / "ibdev").is_file() and _opens(root / "dev/infiniband" / entry.name)
    }
    return sorted(names)


def _opens(path: Path) -> bool:
    """Whether it can be opened: the file's rights do not tell what the container's device rules allow."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _ports(root: Path, devices: Iterable[str]) -> list[Port]:
    return [
        Port(device, folder.name, _read(folder / "link_layer"), _read(folder / "state").partition(": ")[2])
        for device in devices
        for folder in sorted((root / "sys/class/infiniband" / device).glob("ports/*"))
    ]


def _may_lock(root: Path) -> bool:
    lines = (root / "proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_IPC_LOCK & 1)


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def _and(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))
