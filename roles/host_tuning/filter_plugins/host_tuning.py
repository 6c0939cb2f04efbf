"""Filters of the role host_tuning: what the node says, and what follows from it. Pure functions of their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

INFINITY = 2**64 - 1
"""How the kernel and systemd represent a limit without end."""

CAP_SYS_RESOURCE = 24
"""Bit number of the capability to raise hard limits, from linux/capability.h."""

INITIAL_USER_NAMESPACE = ["0", "0", "4294967295"]

BUFFER_PER_BDP = 2
"""Bytes of buffer for each byte in flight: with tcp_adv_win_scale at its default of 1, half of a socket's buffer is
window, the rest is the kernel's overhead (Documentation/networking/ip-sysctl.rst)."""

BYTES_PER_MBIT_MS = 125
"""1 Mbit/s for 1 ms is 1000 bits."""


def tcp_buffer(link_mbit: float, rtt_ms: float, floor: int, cap: int) -> int:
    """Maximum of a TCP buffer in bytes: the bandwidth-delay product's need, between ``floor`` and ``cap``."""
    need = int(BUFFER_PER_BDP * BYTES_PER_MBIT_MS * link_mbit * rtt_ms)
    return min(max(need, floor), cap)


def sysctl_plan(
    settings: Sequence[Mapping[str, Any]], live: Mapping[str, str], record: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """What becomes of each sysctl: its setting plus ``live``, ``before``, ``wanted`` and ``written``.

    A setting has either ``at_least``, which raises the last word of the value and keeps the others, or ``value``.
    ``record`` holds for each key that the role wrote on an earlier run the values ``before`` and ``set``. A live value
    that is no longer what the role set belongs to somebody else, and counts as the value before. ``written`` tells
    whether the value goes into the role's file; a kernel that has more than is asked for keeps its own. Keys of
    ``record`` without a setting are no longer asked for and go back to what they were.
    """
    plan = []
    for setting in settings:
        before = _before(setting["key"], live, record)
        wanted = str(setting["value"]) if "value" in setting else _raised(before, int(setting["at_least"]))
        written = "value" in setting or wanted != before
        plan.append({**setting, "live": live[setting["key"]], "before": before, "wanted": wanted, "written": written})
    for key in sorted(record.keys() - {setting["key"] for setting in settings}):
        before = _before(key, live, record)
        plan.append({"key": key, "live": live[key], "before": before, "wanted": before, "written": False})
    return plan


def _before(key: str, live: Mapping[str, str], record: Mapping[str, Mapping[str, str]]) -> str:
    ours = key in record and record[key]["set"] == live[key]
    return record[key]["before"] if ours else live[key]


def _raised(value: str, at_least: int) -> str:
    *others, last = value.split()
    return " ".join([*others, str(max(int(last), at_least))])


def sysctl_settings(plan: Sequence[Mapping[str, Any]]) -> list[str]:
    """What ``sysctl --write`` has to be given."""
    return [f"{item['key']}={item['wanted']}" for item in plan if item["live"] != item["wanted"]]


def sysctl_record(plan: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The record that undoes ``plan`` and lets the next run recognise its own values."""
    return {item["key"]: {"before": item["before"], "set": item["wanted"]} for item in plan if item["written"]}


def harmful(settings: Sequence[Mapping[str, Any]], known: Mapping[str, int]) -> list[str]:
    """Keys of the ``settings`` whose value is the number ``known`` to harm, in any spelling that the kernel takes."""
    return [item["key"] for item in settings if _number(item["value"]) == known.get(item["key"], ...)]


def _number(value: object) -> int | None:
    """The first word as the kernel reads it, in C's notation."""
    try:
        return int(str(value).split()[0], base=0)
    except (ValueError, IndexError):
        return None


def parse_limit(text: str | int) -> int:
    """A limit as systemd or the kernel writes it; ``infinity`` and ``unlimited`` are :data:`INFINITY`."""
    word = str(text)
    if word in ("infinity", "unlimited"):
        return INFINITY
    if not word.isdecimal():
        raise ValueError(f"a limit is a number or infinity, not {word!r}")
    return int(word)


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


def outdated_services(running: Mapping[str, str], limits: Mapping[str, int]) -> list[str]:
    """The services with other limits than asked for, soft or hard; ``running`` has texts of /proc/PID/limits."""
    wanted = {name: {"soft": limit, "hard": limit} for name, limit in limits.items()}
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


def kernel_findings(plan: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each sysctl that is not what it should be."""
    return [
        f"{item['key']} is {item['live']!r}, not {item['wanted']!r}" for item in plan if item["live"] != item["wanted"]
    ]


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


def _property(limit: str) -> str:
    """How systemd calls a limit."""
    return f"Limit{limit.upper()}"


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "host_tuning_tcp_buffer": tcp_buffer,
            "host_tuning_sysctl_plan": sysctl_plan,
            "host_tuning_sysctl_settings": sysctl_settings,
            "host_tuning_sysctl_record": sysctl_record,
            "host_tuning_parse_limit": parse_limit,
            "host_tuning_show_limit": show_limit,
            "host_tuning_granted_limits": granted_limits,
            "host_tuning_outdated_services": outdated_services,
            "host_tuning_unrestarted_services": unrestarted_services,
            "host_tuning_kernel_findings": kernel_findings,
            "host_tuning_unit_findings": unit_findings,
            "host_tuning_harmful": harmful,
        }
