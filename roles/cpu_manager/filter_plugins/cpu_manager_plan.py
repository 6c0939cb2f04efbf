"""Filters of the role cpu_manager: which CPUs and how much memory the system keeps. Pure functions of the topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

KUBELET_NUMA_NODES = 8
"""The most that the topology manager takes without an option."""

SEARCHED_NUMA_NODES = 16
"""The most for which it is switched on: the kubelet tries each combination of NUMA nodes, 2 to the power of their
number, for each resource of each pod, also of nodes without CPUs (kubernetes/kubernetes#135581)."""

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
"""Of Kubernetes' quantities."""


def parse(text: str) -> list[int]:
    """The CPUs of a list as the kernel writes it, ``0-3,64``. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ValueError(f"{part!r} is neither a number nor a range like 0-3")
        cpus.update(range(int(first), int(last or first) + 1))
    return sorted(cpus)


def show(cpus: Iterable[int]) -> str:
    """The list of ``cpus`` as the kernel writes it."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def plan(facts: Mapping[str, Any], per_numa: int, explicit: str = "") -> dict[str, Any]:
    """The CPUs that the system keeps, of the machine described by ``machine_facts``.

    ``per_numa`` whole cores of each NUMA node with CPUs, the first ones, with all their threads; or the ``explicit``
    list. The result has ``reserved`` (a list as the kernel writes it), ``numa`` (for each NUMA node with CPUs what is
    kept and what is left), ``problems`` (sentences: the plan cannot be followed) and ``notes``.
    """
    cores = _cores(facts)
    reserved, problems = _chosen(facts, cores, per_numa, explicit)
    rows = [_row(node, cores, reserved, facts["gpus"]) for node in sorted({node for node, _ in cores})]
    if not problems:
        problems = _exhausted(rows)
    notes = []
    split = [threads for threads in cores.values() if 0 < len(reserved & threads) < len(threads)]
    if split:
        notes.append(
            f"cpu_manager_reserved_cpus takes only some threads of the cores {'; '.join(map(show, split))}: pods share "
            "these cores with the system."
        )
    return {"reserved": show(reserved), "numa": rows, "problems": problems, "notes": notes}


Cores = dict[tuple[int, int], set[int]]
"""The threads of each core, by NUMA node and core."""


def _cores(facts: Mapping[str, Any]) -> Cores:
    cores: Cores = {}
    for cpu in facts["cpus"]["cpus"]:
        cores.setdefault((cpu["node"], cpu["core"]), set()).add(cpu["cpu"])
    return cores


def _chosen(facts: Mapping[str, Any], cores: Cores, per_numa: int, explicit: str) -> tuple[set[int], list[str]]:
    online = set(facts["cpus"]["online"])
    if explicit:
        try:
            reserved = set(parse(explicit))
        except ValueError as error:
            return set(), [f"cpu_manager_reserved_cpus is {explicit!r}: {error}."]
        if reserved - online:
            absent = show(reserved - online)
            sentence = (
                f"cpu_manager_reserved_cpus names the CPUs {absent}, which are not online here ({show(online)} are)."
            )
            return reserved & online, [sentence]
        return reserved, []
    if per_numa < 1:
        sentence = (
            f"cpu_manager_reserved_per_numa is {per_numa} and cpu_manager_reserved_cpus is empty: a kubelet with the "
            "static policy does not start without reserved CPUs. Reserve at least one core."
        )
        return set(), [sentence]
    reserved = set()
    for node in {node for node, _ in cores}:
        own = sorted((threads for (place, _), threads in cores.items() if place == node), key=min)
        reserved.update(*own[:per_numa])
    return reserved, []


def _row(node: int, cores: Cores, reserved: set[int], gpus: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    own = [threads for (place, _), threads in cores.items() if place == node]
    cpus: set[int] = set().union(*own)
    return {
        "node": node,
        "cores": len(own),
        "reserved": show(reserved & cpus),
        "left": show(cpus - reserved),
        "whole_cores_left": sum(not threads & reserved for threads in own),
        "gpus": [gpu["address"] for gpu in gpus if gpu["numa_node"] == node],
    }


def _exhausted(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each NUMA node whose GPUs get no core, or one for a machine of which nothing is left."""
    if not any(row["whole_cores_left"] for row in rows):
        return [
            f"The reserved CPUs {', '.join(row['reserved'] for row in rows)} leave pods no whole core of the "
            f"{sum(row['cores'] for row in rows)} that the node has. Reserve fewer, or set cpu_manager_policy to none."
        ]
    return [
        f"NUMA node {row['node']} has {len(row['gpus'])} GPUs, and the reserved CPUs {row['reserved']} leave "
        f"{row['whole_cores_left']} of its {row['cores']} cores: each GPU's process needs one of its own. Reserve "
        "fewer, or set cpu_manager_policy to none."
        for row in rows
        if row["whole_cores_left"] < len(row["gpus"])
    ]


def topology(numa: Sequence[Mapping[str, Any]], policy: str, options: Sequence[str]) -> dict[str, Any]:
    """Policy and options of the topology manager for that many NUMA nodes, and a note where it is not as asked."""
    asked: dict[str, str] = switched_on(options)
    if policy == "none" or len(numa) <= KUBELET_NUMA_NODES:
        return {"policy": policy, "options": asked, "note": ""}
    if len(numa) <= SEARCHED_NUMA_NODES:
        return {"policy": policy, "options": asked | {"max-allowable-numa-nodes": str(len(numa))}, "note": ""}
    return {
        "policy": "none",
        "options": {},
        "note": f"The topology manager stays off: the kubelet would search the combinations of all {len(numa)} NUMA "
        "nodes for each pod. CPUs are pinned, core by core, without regard to GPUs.",
    }


def switched_on(options: Sequence[str]) -> dict[str, str]:
    """Policy options as the kubelet's configuration has them."""
    return dict.fromkeys(sorted(options), "true")


def reserved_bytes(config: Mapping[str, Any], given_mib: int, unknown_mib: int) -> int:
    """The memory that a kubelet keeps from pods: what it reserves and its hard eviction limit, by its ``config``.

    ``given_mib`` is taken instead, unless it is 0; ``unknown_mib`` where the kubelet was not asked. 0 where nothing is
    kept, or a share of the memory that is no number of bytes.
    """
    if given_mib or not config:
        return (given_mib or unknown_mib) * 2**20
    parts = [(config.get(name) or {}).get("memory", "0") for name in ("kubeReserved", "systemReserved")]
    parts.append((config.get("evictionHard") or {}).get("memory.available", "0"))
    found = [re.fullmatch(r"(\d+)(|k|[KMGT]i|[MGT])", part) for part in parts]
    return sum(int(one[1]) * UNITS[one[2]] for one in found if one) if all(found) else 0


def memory(numa: Sequence[Mapping[str, Any]], reserved: int) -> dict[str, Any]:
    """The static memory manager's settings, with the ``reserved`` bytes spread over the NUMA nodes with CPUs.

    The kubelet demands that they are exactly the sum of kubeReserved, systemReserved and the hard eviction limit.
    """
    nodes = [node["node"] for node in numa if node["cpus"]]
    share, rest = divmod(reserved, len(nodes))
    return {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [
            {"numaNode": node, "limits": {"memory": str(share + (rest if index == 0 else 0))}}
            for index, node in enumerate(nodes)
        ],
    }


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "cpu_manager_plan": plan,
            "cpu_manager_show": show,
            "cpu_manager_topology": topology,
            "cpu_manager_switched_on": switched_on,
            "cpu_manager_memory": memory,
            "cpu_manager_reserved_bytes": reserved_bytes,
        }
