"""Filters of the role container_runtime: limits of services, as systemd and the kernel tell them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

INFINITY = 2**64 - 1
"""How the kernel and systemd represent a limit without end."""

CAP_SYS_RESOURCE = 24
"""Bit number of the capability to raise hard limits, from linux/capability.h."""

INITIAL_USER_NAMESPACE = ["0", "0", "4294967295"]


def parse_limit(text: str | int) -> int:
    """A limit as systemd or the kernel writes it; ``infinity`` and ``unlimited`` are :data:`INFINITY`."""
    word = str(text)
    if word in ("infinity", "unlimited"):
        return INFINITY
    if not (word.isascii() and word.isdecimal()):
        raise ValueError(f"a limit is a number or infinity, not {word!r}")
    return int(word)


def asked_limit(text: str | int) -> int:
    """A limit as an argument gives it, below 0 where it is none."""
    try:
        return parse_limit(text)
    except ValueError:
        return -1


def show_limit(limit: int) -> str:
    """A limit as a systemd unit writes it."""
    return "infinity" if limit == INFINITY else str(limit)


def process_limits(proc_limits: str) -> dict[str, dict[str, int]]:
    """The soft and hard limits ``nofile`` and ``memlock`` in the text of a /proc/PID/limits."""
    names = {"nofile": "Max open files", "memlock": "Max locked memory"}
    limits = {}
    for name, title in names.items():
        found = re.search(rf"^{title} +(\S+) +(\S+)", proc_limits, re.MULTILINE)
        if found is None:
            raise ValueError(f"no line {title!r} in {proc_limits!r}")
        limits[name] = {"soft": parse_limit(found[1]), "hard": parse_limit(found[2])}
    return limits


def granted_limits(texts: Mapping[str, str], nr_open: int) -> dict[str, int]:
    """The highest ``nofile`` and ``memlock`` that systemd on this node can give to a service.

    ``texts`` holds limits, status and uid_map of /proc/1. With CAP_SYS_RESOURCE in the initial user namespace the ends
    are the kernel's own; without it, as in a container, PID 1 cannot go beyond its own hard limits, and systemd then
    gives less than the unit says without failing.
    """
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", texts["status"], re.MULTILINE)
    if capabilities is None:
        raise ValueError(f"no CapEff in {texts['status']!r}")
    capable = bool(int(capabilities[1], 16) >> CAP_SYS_RESOURCE & 1)
    if capable and texts["uid_map"].split() == INITIAL_USER_NAMESPACE:
        return {"nofile": nr_open, "memlock": INFINITY}
    own = process_limits(texts["limits"])
    return {"nofile": min(own["nofile"]["hard"], nr_open), "memlock": own["memlock"]["hard"]}


def lowered_limits(asked: Mapping[str, int], granted: Mapping[str, int]) -> dict[str, int]:
    """The limits ``asked`` for, each at most what is ``granted``; a limit that ``granted`` lacks stays."""
    return {name: min(limit, granted.get(name, limit)) for name, limit in asked.items()}


def both_ends(limits: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Limits that are soft and hard at once, in the form of :func:`process_limits`."""
    return {name: {"soft": limit, "hard": limit} for name, limit in limits.items()}


def outdated_services(running: Mapping[str, str], limits: Mapping[str, int]) -> list[str]:
    """The services with other limits than asked for, soft or hard; ``running`` has texts of /proc/PID/limits."""
    wanted = both_ends(limits)
    return sorted(service for service, text in running.items() if process_limits(text) != wanted)


def unrestarted_services(
    running: Mapping[str, str], units: Mapping[str, Mapping[str, str]], granted: Mapping[str, int]
) -> list[str]:
    """The services with other hard limits than their units give them, within what systemd may grant.

    Soft limits are the programs' own affair: Go's runtime raises nofile to the hard limit when it starts.
    """
    outdated = []
    for service, text in running.items():
        own = process_limits(text)
        given = {name: min(parse_limit(units[service][_property(name)]), most) for name, most in granted.items()}
        if any(own[name]["hard"] != limit for name, limit in given.items()):
            outdated.append(service)
    return sorted(outdated)


def unit_findings(units: Mapping[str, Mapping[str, str]], limits: Mapping[str, int]) -> dict[str, list[str]]:
    """By service, a sentence for each limit that systemd would give it and that is not what it should be."""
    found: dict[str, list[str]] = {}
    for service, properties in units.items():
        for name, limit in limits.items():
            shown = properties[_property(name)]
            if parse_limit(shown) != limit:
                found.setdefault(service, []).append(
                    f"{_property(name)} of {service} is {shown}, not {show_limit(limit)}"
                )
    return found


def base_spec_findings(specs: Mapping[str, Mapping[str, Mapping[str, int]]], limits: Mapping[str, int]) -> list[str]:
    """A sentence for each file that gives containers less than the ``limits`` of their runtime."""
    return [
        f"{path} gives every pod {name} {show_limit(ends['soft'])}, not {show_limit(limit)}"
        for path, own in specs.items()
        for name, limit in limits.items()
        if (ends := own.get(name)) and min(ends.values()) < limit
    ]


def _property(limit: str) -> str:
    """How systemd calls a limit."""
    return f"Limit{limit.upper()}"


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "container_runtime_asked_limit": asked_limit,
            "container_runtime_show_limit": show_limit,
            "container_runtime_process_limits": process_limits,
            "container_runtime_both_ends": both_ends,
            "container_runtime_granted_limits": granted_limits,
            "container_runtime_lowered_limits": lowered_limits,
            "container_runtime_outdated_services": outdated_services,
            "container_runtime_unrestarted_services": unrestarted_services,
            "container_runtime_unit_findings": unit_findings,
            "container_runtime_base_spec_findings": base_spec_findings,
        }
