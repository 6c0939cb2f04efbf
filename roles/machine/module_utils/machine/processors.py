"""CPUs and NUMA nodes, from /sys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import files, system

CPUS, NODES = "sys/devices/system/cpu", "sys/devices/system/node"


def numa(root: Path) -> list[dict[str, Any]]:
    """The NUMA nodes, with those without CPUs (a GPU's memory on Grace); one where the kernel knows of none."""
    nodes = sorted((root / NODES).glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    if not nodes:
        online = files.number_list(files.text(root / CPUS / "online"))
        return [{"node": 0, "cpus": online, "memory_mib": system.memory_mib(root)}]
    return [
        {
            "node": int(node.name[4:]),
            "cpus": files.number_list(files.text(node / "cpulist")),
            "memory_mib": system.meminfo_total(files.text(node / "meminfo")),
        }
        for node in nodes
    ]


def cpus(root: Path, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """``online`` and ``offline`` CPUs, and for each online one its core, socket and NUMA node.

    Cores are counted through the whole machine in the order of their first CPU, as lscpu does: the kernel's core_id is
    unique only within a socket. CPUs of one core are SMT siblings.
    """
    online = files.number_list(files.text(root / CPUS / "online"))
    node_of = {cpu: node["node"] for node in nodes for cpu in node["cpus"]}
    cores: dict[int, int] = {}
    found = []
    for cpu in online:
        topology = root / CPUS / f"cpu{cpu}" / "topology"
        siblings = files.number_list(files.text(topology / "thread_siblings_list")) or [cpu]
        core = cores.setdefault(siblings[0], len(cores))
        socket = files.number(topology / "physical_package_id")
        found.append({"cpu": cpu, "core": core, "socket": max(socket or 0, 0), "node": node_of.get(cpu, 0)})
    return {"online": online, "offline": files.number_list(files.text(root / CPUS / "offline")), "cpus": found}
