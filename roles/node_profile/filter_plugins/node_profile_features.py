"""What of a node should be the same on all nodes of its kind, under the names that a report uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]

WIRED = ("physical", "bond")
"""Kinds of network interfaces that belong to the machine; the others come and go with its pods."""


def features(facts: Facts, reports: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By name, what ``machine_facts`` and the roles' ``reports`` say, as text that is equal where nodes are alike."""
    return {name: value for part in _PARTS for name, value in part(facts)} | {
        f"settings of {role}": _settings(report["asked"]) for role, report in reports.items() if report["asked"]
    }


def described(variables: Mapping[str, Facts], nodes: Sequence[str], roles: Sequence[str]) -> dict[str, Any]:
    """What node_profile_compare takes, from the ``variables`` that Ansible has of each of the ``nodes``."""
    return {name: _described(variables[name], roles) for name in nodes}


def _described(variables: Facts, roles: Sequence[str]) -> dict[str, Any]:
    reports = {role: variables[f"{role}_report"] for role in roles if f"{role}_report" in variables}
    facts = variables.get("machine_facts", {})
    read = "os" in facts  # what is registered of a node out of reach has no facts, but a message
    return {
        "reports": reports,
        "features": features(facts, reports) if read else {},
        "kind": "" if not read else "GPU nodes" if facts["gpus"] else "nodes without GPUs",
        "failure": variables.get("node_profile_failure", "") or ("" if read else facts.get("msg", "")),
    }


def gpu_names(facts: Facts) -> list[str]:
    """A name for each GPU: the driver's where it answers, else the PCI device's number."""
    if facts["smi"]:
        return [str(gpu["name"]) for gpu in facts["smi"]["gpus"]]
    return [f"PCI device {gpu['device']}" for gpu in facts["gpus"]]


def counted(names: Sequence[str]) -> str:
    """``8 x NVIDIA H100, 1 x NVIDIA T4``; ``none`` for nothing."""
    return ", ".join(f"{amount} x {name}" for name, amount in sorted(Counter(names).items())) or "none"


def _system(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "system", f"{facts['os']['name'] or facts['os']['id']}"
    yield "kernel", str(facts["kernel"]["release"])
    yield "cgroup version", str(facts["cgroup_version"])
    yield "secure boot", _said(facts["secure_boot"])


def _gpus(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "GPUs", counted(gpu_names(facts))
    yield "NVSwitches", str(len(facts["nvswitches"]))
    yield "driver", facts["driver"]["loaded"] or "none"
    yield "kernel modules", facts["driver"]["kind"] or "none"
    yield "fabric manager", facts["driver"]["fabricmanager"]["version"] or facts["driver"]["fabricmanager"]["state"]


def _processors(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "CPUs", str(len(facts["cpus"]["online"]))
    yield "NUMA nodes", str(len(facts["numa"]))
    # Firmware takes another few MiB on each machine.
    yield "memory", f"{round(facts['memory_mib'] / 1024 / 4) * 4} GiB"
    for pages in facts["hugepages"]:
        node = "" if pages["node"] is None else f" of NUMA node {pages['node']}"
        yield f"huge pages of {pages['size_kib']} KiB{node}", str(pages["total"])


def _network(facts: Facts) -> Iterator[tuple[str, str]]:
    for nic in facts["nics"]:
        if nic["kind"] in WIRED or nic["name"] == facts["default_interface"]:
            yield f"MTU of {nic['name']}", str(nic["mtu"])
            yield f"speed of {nic['name']}", f"{nic['speed_mbit']} Mbit/s" if nic["speed_mbit"] else "unknown"
            yield f"link of {nic['name']}", "up" if nic["up"] else "down"
    for hca in facts["rdma"]:
        for port in hca["ports"]:
            yield f"{hca['name']} port {port['port']}", f"{port['state']} {port['layer']} {port['rate']}"


def _cluster(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "Kubernetes", f"{facts['kubernetes']['distribution']} {facts['kubernetes']['version'] or ''}".strip()
    yield "container runtime", f"{facts['runtime']['kind']} {facts['runtime']['version'] or ''}".strip()


_PARTS: tuple[Callable[[Facts], Iterator[tuple[str, str]]], ...] = (_system, _gpus, _processors, _network, _cluster)


def _said(value: bool | None) -> str:
    return "unknown" if value is None else "on" if value else "off"


def _settings(asked: Mapping[str, Any]) -> str:
    """The arguments of a role on one line, in an order of their own."""
    return ", ".join(f"{name}={asked[name]}" for name in sorted(asked))


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "node_profile_described": described,
            "node_profile_gpu_names": gpu_names,
            "node_profile_counted": counted,
        }
