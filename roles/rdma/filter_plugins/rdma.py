"""Filters of the role rdma: the way to GPU memory, and what is wrong with a node. Pure functions of their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

DMABUF_KERNEL = (5, 12)
"""The first kernel whose RDMA core takes memory from other devices as DMA-BUF."""

PEER_EXPORTERS = {"ib_core", "ib_uverbs"}
"""One of them is needed by an nvidia-peermem that was built with the interface for peers. One that needs neither is an
empty shell, whose start fails with "Invalid argument"."""

REDIRECT = 0b1100
"""Bits of the ACS control word that send requests and completions between devices up to the root complex."""

UNLIMITED = "unlimited"

Finding = dict[str, str]


def gpudirect(asked: str, node: Mapping[str, Any], release: str, gpus: Sequence[Any]) -> dict[str, Any]:
    """The way by which RDMA devices read and write GPU memory: ``path`` (dmabuf, peermem or none) and its ``why``.

    ``holds`` tells whether the node proves it; ``broken`` what is in the way and beyond what the role can change.
    """
    if asked == "none":
        return {"path": "none", "why": "rdma_gpudirect is none", "holds": True, "broken": ""}
    if not gpus:
        return {"path": "none", "why": "the node has no NVIDIA GPU", "holds": True, "broken": ""}
    if node["open_driver"] is None:
        why = "no NVIDIA driver is loaded"
        return {"path": "none", "why": why, "holds": False, "broken": why}
    missing = _dmabuf_missing(node, release)
    if asked == "dmabuf" or (asked == "auto" and not missing):
        why = "open kernel modules, and an RDMA core that takes DMA-BUF"
        return {"path": "dmabuf", "why": why, "holds": not missing, "broken": missing}
    why = missing or "rdma_gpudirect is peermem"
    broken = _peermem_broken(node)
    return {"path": "peermem", "why": why, "holds": node["peermem"]["loaded"] and not broken, "broken": broken}


def _dmabuf_missing(node: Mapping[str, Any], release: str) -> str:
    """What DMA-BUF lacks on the node; empty where nothing."""
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None or (int(version[1]), int(version[2])) < DMABUF_KERNEL:
        return f"kernel {release} is older than {'.'.join(map(str, DMABUF_KERNEL))}, the first with DMA-BUF for RDMA"
    if not node["open_driver"]:
        return "the NVIDIA driver is the proprietary one, which exports no DMA-BUF"
    if not node["interfaces"]["dmabuf"]:
        return "the RDMA core that is loaded takes no DMA-BUF (ib_umem_dmabuf_get is not there)"
    return ""


def _peermem_broken(node: Mapping[str, Any]) -> str:
    """Why nvidia-peermem does not and cannot serve; empty where it does, or is only not loaded yet."""
    peermem = node["peermem"]
    if peermem["loaded"]:
        if peermem["clients"] or peermem["linked"]:
            return ""
        return "nvidia-peermem is loaded, but not registered with the RDMA stack"
    if peermem["needs"] is None:
        return "the NVIDIA driver brings no module nvidia-peermem for this kernel"
    if not PEER_EXPORTERS & set(peermem["needs"]):
        return "nvidia-peermem was built without the RDMA stack's interface for peers and cannot be loaded"
    if not node["interfaces"]["peer"]:
        return "the RDMA stack that runs has no interface for peers (ib_register_peer_memory_client)"
    return ""


def wanted_modules(way: Mapping[str, Any], stack: str) -> list[str]:
    """The modules that are to be loaded at boot. A managed stack loads its own."""
    own = ["ib_uverbs", "rdma_ucm"] if stack == "inbox" else []
    return own + (["nvidia-peermem"] if way["path"] == "peermem" and not way["broken"] else [])


def unloaded_modules(wanted: Sequence[str], hcas: Sequence[Mapping[str, Any]], node: Mapping[str, Any]) -> list[str]:
    """Those of the ``wanted`` modules whose effect is not there."""
    there = {
        "ib_uverbs": {hca["name"] for hca in hcas} <= set(node["verbs"]),
        "rdma_ucm": node["rdma_cm"],
        "nvidia-peermem": node["peermem"]["loaded"],
    }
    return [name for name in wanted if not there[name]]


def less(limit: str, least: str) -> bool:
    """Whether a limit of the kernel (number or ``unlimited``) is less than one of systemd (number or ``infinity``)."""
    if limit == UNLIMITED:
        return False
    return least == "infinity" or int(limit) < int(least)


def port_findings(hcas: Sequence[Mapping[str, Any]], named: bool, family: str) -> list[Finding]:
    """What is wrong with the ports that carry training.

    A port that nobody has ``named`` may be one that is not in use: it is an error only where no port works.
    """
    ports = [hca for hca in hcas if hca["training"]]
    grade = "error" if named or not any(_usable(port) for port in ports) else "warning"
    return [*_links(ports, grade), *_rates(ports), *_gids(ports, grade, family)]


def _usable(port: Mapping[str, Any]) -> bool:
    return bool(port["state"] == "ACTIVE" and port["gid_index"] is not None)


def _links(ports: Sequence[Mapping[str, Any]], grade: str) -> Iterator[Finding]:
    for port in ports:
        if port["state"] == "ACTIVE":
            continue
        fix = "Check cable, transceiver and switch port"
        if port["layer"] == "InfiniBand" and port["phys_state"] == "LinkUp":
            fix = "The link is up, but no subnet manager has configured it: start or reach one"
        what = f"{_name(port)} is {port['state']} ({port['phys_state']}), not ACTIVE"
        yield _finding(grade, what, f"{fix}; or leave the device out of rdma_hcas")


def _rates(ports: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    active = [port for port in ports if port["state"] == "ACTIVE"]
    fastest = max((port["gbit"] for port in active), default=0)
    for port in active:
        if port["gbit"] < fastest:
            what = f"{_name(port)} runs at {port['rate']}, the fastest port of the node at {fastest:g} Gb/sec"
            yield _finding("warning", what, "Check cable and switch port; or name the ports of training in rdma_hcas")


def _gids(ports: Sequence[Mapping[str, Any]], grade: str, family: str) -> Iterator[Finding]:
    roce = [port for port in ports if port["layer"] == "Ethernet" and port["state"] == "ACTIVE"]
    for port in roce:
        if port["gid_index"] is None:
            where = ", ".join(port["netdevs"]) or "its network interface"
            words = {"ipv4": "an IPv4", "ipv6": "a global IPv6"}[family]
            what = f"{_name(port)} has no RoCE v2 GID of {words} address"
            yield _finding(grade, what, f"Give {where} {words} address, or change rdma_gid_family")
    indexes = sorted({port["gid_index"] for port in roce} - {None})
    if len(indexes) > 1:
        what = f"The RoCE ports need different GID indexes ({', '.join(map(str, indexes))})"
        yield _finding("warning", what, "Leave NCCL_IB_GID_INDEX unset: NCCL 2.21 and newer choose for each port")


def stack_findings(hcas: Sequence[Mapping[str, Any]], node: Mapping[str, Any], way: Mapping[str, Any]) -> list[Finding]:
    """What is wrong between the kernel and the programs: device files, and the way to GPU memory."""
    found = []
    closed = sorted({hca["name"] for hca in hcas if hca["training"]} - set(node["verbs"]))
    if closed:
        what = f"{', '.join(closed)} cannot be opened by programs: /dev/infiniband has no uverbs file of it"
        found.append(_finding("error", what, "Load the module ib_uverbs; rdma_stack inbox does"))
    if not node["rdma_cm"]:
        what = "/dev/infiniband/rdma_cm is not there; NCCL does without, UCX and tests by address do not"
        found.append(_finding("warning", what, "Load the module rdma_ucm; rdma_stack inbox does"))
    return [*found, *_way_findings(node, way)]


def _way_findings(node: Mapping[str, Any], way: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong on the way to GPU memory."""
    if way["broken"]:
        fix = "Open kernel modules on kernel 5.12 or newer need no nvidia-peermem"
        if way["path"] == "none":
            fix = "See the findings of nvidia_driver; run again once the driver is loaded"
        elif way["path"] == "peermem" and node["ofed"]:
            fix = "Build the driver's kernel modules again: the RDMA stack was not there when they were built"
        elif way["path"] == "peermem":
            fix += "; otherwise install OFED or DOCA first, then the driver again"
        grade = "warning" if way["path"] == "none" else "error"
        what = f"RDMA devices cannot reach GPU memory: {way['broken']}"
        yield _finding(grade, what, f"{fix}. rdma_gpudirect none accepts copies through host memory")
    elif way["path"] == "peermem" and not way["holds"]:
        yield _finding("error", "nvidia-peermem is not loaded", "Run site.yml, which loads it")
    elif way["path"] == "peermem" and not node["peermem"]["clients"]:
        what = "nvidia-peermem is loaded and linked to the RDMA stack, whose table of peers does not name it"
        yield _finding("warning", what, "Look for GDRDMA in NCCL's log (NCCL_DEBUG=INFO) of a first run")


def memlock_findings(node: Mapping[str, Any], service: str, least: str) -> list[Finding]:
    """Whether containers may lock the memory that RDMA registers. NCCL falls back to TCP without a word if not."""
    if not node["memlock"]:
        what = "No container runtime runs, so that the limit of its containers (memlock) is not known"
        return [_finding("warning", what, "Install and start it, then run again")]
    low = [limit for limit in node["memlock"] if less(limit, least)]
    if not low:
        return []
    what = f"Containers may lock {low[0]} bytes of memory (memlock of {service}), less than {least}"
    return [_finding("error", what, "Role container_runtime sets it; it holds after a restart of the service")]


def path_findings(
    near: Sequence[Mapping[str, Any]], node: Mapping[str, Any], way: Mapping[str, Any], virtual: bool
) -> list[Finding]:
    """What makes the way between GPUs and RDMA devices longer than it looks. A virtual machine cannot change it."""
    if way["path"] == "none" or virtual:
        return []
    found = []
    redirecting = [bridge for bridge, control in node["acs"].items() if control & REDIRECT]
    if redirecting and any(entry["class"] in ("PIX", "PXB") for entry in near):
        what = f"ACS sends traffic between GPUs and RDMA devices through the CPU at {_few(redirecting)}"
        found.append(
            _finding("warning", what, "Switch ACS off in the firmware, or for these bridges with setpci at boot")
        )
    translated = [device for device, kind in node["iommu"].items() if kind.startswith("DMA")]
    if translated:
        what = f"The IOMMU translates each access of {_few(translated)}"
        found.append(_finding("warning", what, "Boot with iommu=pt, or switch the IOMMU off in the firmware"))
    far = [entry["gpu"] for entry in near if entry["class"] in ("PHB", "NODE", "SYS")]
    if far:
        what = f"No RDMA device shares a PCI switch with {_few(far)}; NCCL then as a rule copies through host memory"
        found.append(_finding("info", what, "NCCL_NET_GDR_LEVEL allows longer ways; measure before you set it"))
    return found


def idle_nics(nics: Sequence[Mapping[str, Any]], drivers: Mapping[str, str]) -> list[str]:
    """Interfaces that could do RDMA and have no RDMA device: ``eth0 (mlx5_core, needs mlx5_ib)``.

    The interfaces of a bond may share one device, which the kernel then shows at the first of them.
    """
    served = {nic["master"] for nic in nics if nic["master"] and nic["rdma"]}
    return [
        f"{nic['name']} ({nic['driver']}, needs {drivers[nic['driver']]})"
        for nic in nics
        if nic["driver"] in drivers and not nic["rdma"] and nic["master"] not in served
    ]


def _name(port: Mapping[str, Any]) -> str:
    return f"{port['name']} port {port['port']}"


def _few(words: Sequence[str]) -> str:
    """At most four of the words, and how many more there are."""
    more = f" and {len(words) - 4} more" if len(words) > 4 else ""
    return ", ".join(words[:4]) + more


def _finding(severity: str, what: str, fix: str) -> Finding:
    return {"severity": severity, "what": f"{what}.", "fix": f"{fix}."}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "rdma_gpudirect": gpudirect,
            "rdma_wanted_modules": wanted_modules,
            "rdma_unloaded_modules": unloaded_modules,
            "rdma_port_findings": port_findings,
            "rdma_stack_findings": stack_findings,
            "rdma_memlock_findings": memlock_findings,
            "rdma_path_findings": path_findings,
            "rdma_idle_nics": idle_nics,
        }
