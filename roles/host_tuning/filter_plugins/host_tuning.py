"""Filters of the role host_tuning: what the node says, and what follows from it. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


def kernel_findings(plan: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each sysctl that is not what it should be."""
    return [
        f"{item['key']} is {item['live']!r}, not {item['wanted']!r}" for item in plan if item["live"] != item["wanted"]
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "host_tuning_tcp_buffer": tcp_buffer,
            "host_tuning_sysctl_plan": sysctl_plan,
            "host_tuning_sysctl_settings": sysctl_settings,
            "host_tuning_sysctl_record": sysctl_record,
            "host_tuning_kernel_findings": kernel_findings,
            "host_tuning_harmful": harmful,
        }
