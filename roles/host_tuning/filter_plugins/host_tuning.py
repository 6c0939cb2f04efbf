"""Filters of the role host_tuning: what the node says, and what follows from it. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_interface
from typing import Any

BUFFER_PER_BDP = 2
"""Bytes of buffer for each byte in flight: with tcp_adv_win_scale at its default of 1, half of a socket's buffer is
window, the rest is the kernel's overhead (Documentation/networking/ip-sysctl.rst)."""

BYTES_PER_MBIT_MS = 125
"""1 Mbit/s for 1 ms is 1000 bits."""


def tcp_buffer(link_mbit: float, rtt_ms: float, floor: int, cap: int) -> int:
    """Maximum of a TCP buffer in bytes: the bandwidth-delay product's need, between ``floor`` and ``cap``."""
    need = BUFFER_PER_BDP * BYTES_PER_MBIT_MS * link_mbit * rtt_ms
    return int(min(cap, max(floor, need)))  # in this order also for a time that is no number, which the rules refuse


def sysctl_plan(
    settings: Sequence[Mapping[str, Any]], live: Mapping[str, str], record: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """What becomes of each sysctl: its setting plus ``live``, ``before``, ``wanted`` and ``written``.

    A setting has either ``at_least``, which raises the last word of the value and keeps the others, or ``value``.
    ``record`` holds for each key that the role wrote on an earlier run the values ``before`` and ``set``, and as
    ``earlier`` what the role had set until then. A live value that is neither of the two that the role set belongs to
    somebody else, and counts as the value before. ``written`` tells
    whether the value goes into the role's file; a kernel that has more than is asked for keeps its own. Keys of
    ``record`` without a setting are no longer asked for and go back to what they were. Keys that the kernel does not
    show are left out.
    """
    plan = []
    for setting in settings:
        if setting["key"] not in live:
            continue
        before = _before(setting["key"], live, record)
        wanted = (
            " ".join(str(setting["value"]).split()) if "value" in setting else _raised(before, int(setting["at_least"]))
        )
        written = "value" in setting or wanted != before
        plan.append({**setting, "live": live[setting["key"]], "before": before, "wanted": wanted, "written": written})
    for key in sorted(record.keys() & live.keys() - {setting["key"] for setting in settings}):
        before = _before(key, live, record)
        plan.append({"key": key, "live": live[key], "before": before, "wanted": before, "written": False})
    return plan


def _before(key: str, live: Mapping[str, str], record: Mapping[str, Mapping[str, str]]) -> str:
    ours = key in record and live[key] in (record[key]["set"], record[key].get("earlier"))
    return record[key]["before"] if ours else live[key]


def _raised(value: str, at_least: int) -> str:
    *others, last = value.split()
    return " ".join([*others, str(max(int(last), at_least))])


def sysctl_values(plan: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The values that have to be written."""
    return {item["key"]: item["wanted"] for item in plan if item["live"] != item["wanted"]}


def sysctl_record(plan: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The record that undoes ``plan`` and lets the next run recognise its own values.

    It is written before the values are: where they then are not, what an earlier run has set is still there.
    """
    record = {}
    for item in plan:
        if item["written"] or item["live"] != item["wanted"]:
            record[item["key"]] = {"before": item["before"], "set": item["wanted"]}
            if item["live"] not in (item["before"], item["wanted"]):
                record[item["key"]]["earlier"] = item["live"]
    return record


def harmful(settings: Sequence[Mapping[str, Any]], known: Mapping[str, int]) -> list[str]:
    """Keys of the ``settings`` whose value is the number ``known`` to harm, in any spelling that the kernel takes."""
    return [item["key"] for item in settings if _number(item["value"]) == known.get(item["key"], ...)]


def _number(value: object) -> int | None:
    """The first word as the kernel reads it, in C's notation."""
    try:
        return int(str(value).split()[0], base=0)
    except (ValueError, IndexError):
        return None


def lowering(settings: Sequence[Mapping[str, Any]], live: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """A phrase for each of the ``settings`` among the ``keys`` that is less than the kernel has."""
    phrases = []
    for item in settings:
        asked, has = _number(item["value"]), _number(live.get(item["key"], ""))
        if item["key"] in keys and asked is not None and has is not None and asked < has:
            phrases.append(f"{item['key']} from {has} to {asked}")
    return phrases


def shared_subnets(nics: Sequence[Mapping[str, Any]]) -> list[str]:
    """IPv4 subnets in which several interfaces have addresses, as ``10.0.0.0/24 (eth1, eth2)``."""
    members: dict[str, list[str]] = {}
    for nic in nics:
        if nic["up"] and nic["kind"] in ("physical", "bond", "vlan"):
            for subnet in {str(ip_interface(address).network) for address in nic["ipv4"]}:
                members.setdefault(subnet, []).append(nic["name"])
    return [f"{subnet} ({', '.join(names)})" for subnet, names in sorted(members.items()) if len(names) > 1]


def hugepages(facts: Mapping[str, Any], asked: Mapping[int, int]) -> list[dict[str, Any]]:
    """Settings for huge pages: of each size in ``asked`` (KiB: pages) so many on every NUMA node that has CPUs.

    Their keys are paths of /sys, which the role's modules take beside sysctls. A size of 0 pages is left alone.
    """
    return [
        {
            "key": f"/sys/devices/system/node/node{numa['node']}/hugepages/hugepages-{size}kB/nr_hugepages",
            "at_least": pages,
            "reach": "host",
            "reason": f"{pages} pages of {size // 1024} MiB on each NUMA node are asked for",
        }
        for size, pages in asked.items()
        if pages > 0
        for numa in facts["numa"]
        if numa["cpus"]
    ]


def missing_sizes(facts: Mapping[str, Any], asked: Mapping[int, int]) -> list[int]:
    """The sizes, in KiB, of which pages are ``asked`` for and which the kernel does not have."""
    there = {pool["size_kib"] for pool in facts["hugepages"]}
    return [size for size, pages in asked.items() if pages > 0 and size not in there]


def kernel_findings(plan: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A finding for each sysctl that is not what it should be."""
    return [
        {
            "severity": "error",
            "what": f"{item['key']} is {item['live']!r}, not {item['wanted']!r}.",
            "fix": "Run playbooks/site.yml.",
        }
        for item in plan
        if item["live"] != item["wanted"]
    ]


def boot_findings(plan: Sequence[Mapping[str, Any]], later: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
    """A finding for each sysctl that a file read after the role's would set to something else at boot."""
    rivals = [(item, later[item["key"]]) for item in plan if item["written"] and item["key"] in later]
    return [
        {
            "severity": "error",
            "what": f"{rival['file']} sets {item['key']} to {rival['value']!r} at the next boot.",
            "fix": "Remove the line: the file is read after the role's.",
        }
        for item, rival in rivals
        if rival["value"] != item["wanted"]
    ]


def shown(plan: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Of each sysctl that is asked for: what it is, where that takes effect and why it is asked for."""
    return [
        {"key": item["key"], "value": item["live"], "reach": item["reach"], "reason": item["reason"]}
        for item in plan
        if "reach" in item
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "host_tuning_tcp_buffer": tcp_buffer,
            "host_tuning_sysctl_plan": sysctl_plan,
            "host_tuning_sysctl_values": sysctl_values,
            "host_tuning_sysctl_record": sysctl_record,
            "host_tuning_hugepages": hugepages,
            "host_tuning_missing_sizes": missing_sizes,
            "host_tuning_kernel_findings": kernel_findings,
            "host_tuning_boot_findings": boot_findings,
            "host_tuning_shown": shown,
            "host_tuning_harmful": harmful,
            "host_tuning_lowering": lowering,
            "host_tuning_shared_subnets": shared_subnets,
        }
