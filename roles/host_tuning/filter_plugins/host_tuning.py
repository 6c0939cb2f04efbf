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


def parse_grep(output: str) -> dict[str, str]:
    """The texts of files by their path, from what ``grep --with-filename ''`` prints for them."""
    texts: dict[str, str] = {}
    for line in output.splitlines():
        path, _, text = line.partition(":")
        texts[path] = texts.get(path, "") + text + "\n"
    return texts


def sysctl_path(key: str) -> str:
    """Where the kernel shows a sysctl."""
    return "/proc/sys/" + key.replace(".", "/")


def sysctls(texts: Mapping[str, str]) -> dict[str, str]:
    """The sysctls among ``texts`` by their key, words joined by one space."""
    root = "/proc/sys/"
    return {
        path.removeprefix(root).replace("/", "."): " ".join(text.split())
        for path, text in texts.items()
        if path.startswith(root)
    }


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


def sysctl_record(plan: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The record that undoes ``plan`` and lets the next run recognise its own values."""
    return {item["key"]: {"before": item["before"], "set": item["wanted"]} for item in plan if item["written"]}


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
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", texts["/proc/1/status"], re.MULTILINE)
    if capabilities is None:
        raise ValueError(f"no CapEff in {texts['/proc/1/status']!r}")
    capable = bool(int(capabilities[1], 16) >> CAP_SYS_RESOURCE & 1)
    if capable and texts["/proc/1/uid_map"].split() == INITIAL_USER_NAMESPACE:
        return {"nofile": nr_open, "memlock": INFINITY}
    own = process_limits(texts["/proc/1/limits"])
    return {"nofile": min(own["nofile"]["hard"], nr_open), "memlock": own["memlock"]["hard"]}


def units(show: str) -> dict[str, dict[str, str]]:
    """The blocks that ``systemctl show --property=Id,...`` prints for several units, by the unit's name."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines()) for block in show.strip().split("\n\n") if block)
    return {block["Id"].removesuffix(".service"): block for block in blocks}


def limit_files(units_shown: Mapping[str, Mapping[str, str]], services: Sequence[str]) -> dict[str, str]:
    """Where the kernel shows the limits of each service's main process; without the services that do not run."""
    pids = {service: units_shown[service]["MainPID"] for service in services}
    return {service: f"/proc/{pid}/limits" for service, pid in pids.items() if pid != "0"}


def outdated_services(files: Mapping[str, str], texts: Mapping[str, str], limits: Mapping[str, int]) -> list[str]:
    """The services whose main process has other limits, soft or hard; ``files`` is from :func:`limit_files`."""
    wanted = {name: {"soft": limit, "hard": limit} for name, limit in limits.items()}
    return sorted(service for service, file in files.items() if process_limits(texts[file]) != wanted)


def findings(
    plan: Sequence[Mapping[str, Any]], services: Mapping[str, Mapping[str, str]], limits: Mapping[str, int]
) -> list[str]:
    """A sentence for each sysctl and each limit of a service that is not what it should be."""
    sentences = [
        f"{item['key']} is {item['live']!r}, not {item['wanted']!r}" for item in plan if item["live"] != item["wanted"]
    ]
    for service, properties in services.items():
        for name, limit in limits.items():
            shown = properties[f"Limit{name.upper()}"]
            if parse_limit(shown) != limit:
                sentences.append(f"Limit{name.upper()} of {service} is {shown}, not {show_limit(limit)}")
    return sentences


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "host_tuning_tcp_buffer": tcp_buffer,
            "host_tuning_parse_grep": parse_grep,
            "host_tuning_sysctl_path": sysctl_path,
            "host_tuning_sysctls": sysctls,
            "host_tuning_sysctl_plan": sysctl_plan,
            "host_tuning_sysctl_record": sysctl_record,
            "host_tuning_parse_limit": parse_limit,
            "host_tuning_show_limit": show_limit,
            "host_tuning_process_limits": process_limits,
            "host_tuning_granted_limits": granted_limits,
            "host_tuning_units": units,
            "host_tuning_limit_files": limit_files,
            "host_tuning_outdated_services": outdated_services,
            "host_tuning_findings": findings,
        }
