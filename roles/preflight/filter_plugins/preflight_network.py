"""Filters of the role preflight: MTU and speed of the network interfaces, and the ports that training needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
Finding = dict[str, str]

JUMBO = 9000
"""MTU in bytes that data-centre Ethernet is commonly set to."""


def network_findings(facts: Facts, interfaces: Sequence[str], least_mbit: int, jumbo_mbit: int) -> list[Finding]:
    """Findings about interfaces.

    ``interfaces`` carry training; without any, those that are alike are compared with each other. ``least_mbit`` is the
    least speed of training's interfaces (0: any), ``jumbo_mbit`` the speed from which large frames pay.
    """
    by_name = {nic["name"]: nic for nic in facts["nics"]}
    missing = [name for name in interfaces if name not in by_name]
    if missing:
        return [
            {
                "severity": "error",
                "what": f"the node has no interface {', '.join(missing)} (preflight_interfaces).",
                "fix": f"It has {', '.join(sorted(by_name))}. Name those that carry training.",
            }
        ]
    training = [by_name[name] for name in interfaces or [facts["default_interface"]] if name in by_name]
    groups = [training] if len(interfaces) > 1 else _alike(facts["nics"])
    return [
        *_down(training if interfaces else []),
        *_slow(training, least_mbit),
        *(finding for group in groups for finding in (*_uneven(group, "mtu"), *_uneven(group, "speed_mbit"))),
        *_small_frames(facts, jumbo_mbit),
    ]


def is_infiniband(nic: Facts) -> bool:
    """Whether an interface is IPoIB, whose hardware address has 20 bytes and whose MTU follows other rules."""
    return str(nic["mac"]).count(":") > 5


def _alike(nics: Sequence[Facts]) -> list[list[Facts]]:
    """Interfaces that are up, by what they are: rails are several of one kind, and so are the ports of a bond."""
    groups: dict[tuple[Any, ...], list[Facts]] = {}
    for nic in nics:
        if nic["kind"] == "physical" and nic["up"]:
            kind = (nic["driver"], is_infiniband(nic), nic["master"], bool(nic["rdma"]))
            groups.setdefault(kind, []).append(nic)
    return [group for group in groups.values() if len(group) > 2 or group[0]["master"]]


def _down(training: Sequence[Facts]) -> Iterator[Finding]:
    for nic in training:
        if not nic["up"]:
            yield {
                "severity": "error",
                "what": f"{nic['name']} is to carry training (preflight_interfaces) and has no link.",
                "fix": "Look at the cable, the transceiver and the switch's port, and whether the interface is set up.",
            }


def _slow(training: Sequence[Facts], least_mbit: int) -> Iterator[Finding]:
    for nic in training:
        if least_mbit and nic["speed_mbit"] is None and nic["up"]:
            yield {
                "severity": "info",
                "what": f"{nic['name']} does not tell its speed, as virtual interfaces do not.",
                "fix": "Measure it between two nodes, for instance with iperf3.",
            }
        elif least_mbit and nic["up"] and nic["speed_mbit"] < least_mbit:
            yield {
                "severity": "error",
                "what": f"{nic['name']} runs at {nic['speed_mbit']} Mbit/s, less than {least_mbit}.",
                "fix": "Look at the cable, the transceiver and the switch's port, or lower preflight_link_mbit.",
            }


def _uneven(group: Sequence[Facts], what: str) -> Iterator[Finding]:
    """Interfaces of ``group`` that differ from most of it."""
    values = Counter(nic[what] for nic in group if nic[what] is not None)
    if len(values) < 2:
        return
    usual, count = values.most_common(1)[0]
    title, unit = {"mtu": ("MTU", ""), "speed_mbit": ("a speed of", " Mbit/s")}[what]
    for nic in group:
        if nic[what] not in (usual, None):
            yield {
                "severity": "warning",
                "what": f"{nic['name']} has {title} {nic[what]}{unit}, and {count} of the {len(group)} interfaces like "
                f"it have {usual}{unit}; the slowest rail holds up all of them.",
                "fix": {
                    "mtu": "Set one MTU on all of them, on the switch's ports and in the network's configuration, so "
                    "that it survives a boot.",
                    "speed_mbit": "Look at the cable, the transceiver and the switch's port.",
                }[what],
            }


def _small_frames(facts: Facts, jumbo_mbit: int) -> Iterator[Finding]:
    small = [
        nic["name"]
        for nic in facts["nics"]
        if nic["kind"] in ("physical", "bond") and nic["up"] and not nic["master"] and not is_infiniband(nic)
        if (nic["speed_mbit"] or 0) >= jumbo_mbit > 0 and nic["mtu"] < JUMBO
    ]
    if small:
        yield {
            "severity": "info",
            "what": f"{', '.join(small)} could carry large frames and has an MTU below {JUMBO}.",
            "fix": f"If the switches allow it, set the MTU to {JUMBO} on all nodes and in the pod network; "
            "otherwise leave it.",
        }


def interfaces_told(facts: Facts) -> list[dict[str, Any]]:
    """MTU, speed and link of the interfaces that lead out of the node."""
    return [
        {key: nic[key] for key in ("name", "mtu", "speed_mbit", "up")}
        for nic in facts["nics"]
        if nic["kind"] in ("physical", "bond", "vlan") or nic["name"] == facts["default_interface"]
    ]


def port_findings(ports: Facts, needed: Mapping[str, Sequence[int]], fixed: Sequence[int]) -> list[Finding]:
    """Whether something else has, or may get, a port that is ``needed`` (first and last by purpose).

    ``fixed`` are the ports that a run cannot choose. Pods with a network of their own have ports of their own; this is
    about pods with the node's.
    """
    return [*_taken(ports["listening"], fixed), *_given_away(ports, needed)]


def _taken(listening: Sequence[int], fixed: Sequence[int]) -> Iterator[Finding]:
    taken = [port for port in fixed if port in listening]
    if taken:
        yield {
            "severity": "info",
            "what": f"something on the node listens on {' and '.join(map(str, taken))}, which hostNetwork runs use.",
            "fix": "If it is no run of yours, `ss -tlnp` names it; a run can take other ports.",
        }


def _given_away(ports: Facts, needed: Mapping[str, Sequence[int]]) -> list[Finding]:
    if not ports["ephemeral"]:
        return []
    first, last = ports["ephemeral"]
    reserved = _ranges(ports["reserved"])
    taken = {
        purpose: (max(first, low), min(last, high))
        for purpose, (low, high) in needed.items()
        if low <= last and high >= first and not _covered(max(first, low), min(last, high), reserved)
    }
    if not taken:
        return []
    parts = [f"{purpose} ({low}-{high})" for purpose, (low, high) in taken.items()]
    return [
        {
            "severity": "warning",
            "what": f"outgoing connections take ports from {first} to {last}, among them those of {'; '.join(parts)}. "
            "With hostNetwork a run may find its port taken.",
            "fix": "Set net.ipv4.ip_local_port_range to 32768 60999, the kernel's default, or list these ports in "
            "net.ipv4.ip_local_reserved_ports.",
        }
    ]


def _ranges(text: str) -> list[tuple[int, int]]:
    return sorted((int(low), int(high or low)) for low, high in re.findall(r"(\d+)(?:-(\d+))?", text))


def _covered(low: int, high: int, ranges: Sequence[tuple[int, int]]) -> bool:
    for first, last in ranges:
        if first <= low <= last:
            low = last + 1
    return low > high


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "preflight_network_findings": network_findings,
            "preflight_port_findings": port_findings,
            "preflight_interfaces_told": interfaces_told,
        }
