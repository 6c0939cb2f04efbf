"""Filter of the role preflight: what of the operating system, disks and clock would get in the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
Finding = dict[str, str]

LEAST_KERNEL = (5, 14)
"""The oldest of the supported systems (RHEL 9)."""

REFUSES_CGROUP_V1 = (1, 35)
"""From this version on the kubelet does not start on cgroup v1 unless failCgroupV1 is false."""


def system_findings(
    facts: Facts, systems: Mapping[str, Sequence[str]], disks: Mapping[str, Mapping[str, float]]
) -> list[Finding]:
    """Findings about the system.

    ``systems`` has the supported versions by the distribution's id; ``disks`` by folder the least free ``gib`` and
    ``percent`` of its file system.
    """
    return [
        *_operating_system(facts["os"], systems),
        *_kernel(facts["kernel"]),
        *_cgroup(facts),
        *_disks(facts["disks"], disks),
        *_clock(facts["clock_synchronized"]),
    ]


def _operating_system(system: Facts, systems: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    versions = systems.get(system["id"], [])
    if not any(system["version"] == version or system["version"].startswith(f"{version}.") for version in versions):
        known = "; ".join(f"{name} {', '.join(versions)}" for name, versions in systems.items())
        yield {
            "severity": "error",
            "what": f"the system is {system['name'] or 'unknown'}, which the roles do not know.",
            "fix": f"Install one of: {known}.",
        }


def _kernel(kernel: Facts) -> Iterator[Finding]:
    if version(kernel["release"]) < LEAST_KERNEL:
        least = ".".join(map(str, LEAST_KERNEL))
        yield {
            "severity": "error",
            "what": f"the kernel is {kernel['release']}, older than that of any supported system ({least}).",
            "fix": "Boot the kernel that the distribution ships.",
        }
    if kernel["next"] and kernel["next"] != kernel["release"] and kernel["release"] in kernel["installed"]:
        yield {
            "severity": "info",
            "what": f"the kernel {kernel['release']} runs and {kernel['next']} will boot next.",
            "fix": "Reboot when the node is drained, so that what is proved here is what runs later.",
        }


def _cgroup(facts: Facts) -> Iterator[Finding]:
    kubernetes = facts["kubernetes"]
    if facts["cgroup_version"] != 1 or kubernetes["distribution"] == "none":
        return
    told = kubernetes["version"] or "of unknown version"
    fix = "Boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line; drain the node first."
    if version(told) < REFUSES_CGROUP_V1:
        yield {
            "severity": "warning",
            "what": f"the node has cgroup v1, with which the kubelet (here {told}) does not start from 1.35 on.",
            "fix": fix,
        }
    elif kubernetes["fail_cgroup_v1"] is False:
        yield {
            "severity": "warning",
            "what": f"the node has cgroup v1, which the kubelet {told} only takes because failCgroupV1 is false.",
            "fix": fix,
        }
    else:
        yield {
            "severity": "error",
            "what": f"the node has cgroup v1, with which the kubelet {told} does not start.",
            "fix": f"{fix} To go on with v1 for now, set failCgroupV1: false in the kubelet's configuration.",
        }


def _disks(found: Sequence[Facts], least: Mapping[str, Mapping[str, float]]) -> Iterator[Finding]:
    for disk in found:
        path, free_gib = disk["path"], disk["free_mib"] / 1024
        percent = 100 * disk["free_mib"] / max(disk["total_mib"], 1)
        if free_gib < least[path]["gib"]:
            yield {
                "severity": "error",
                "what": f"{path} has {free_gib:.1f} GiB free, less than {least[path]['gib']:g} GiB.",
                "fix": "Free space (crictl rmi --prune removes unused images), enlarge the file system, or lower "
                f"{least[path]['argument']}.",
            }
        elif percent < least[path]["percent"]:
            yield {
                "severity": "warning",
                "what": f"{path} has {percent:.0f} % free; by default the kubelet evicts pods below "
                f"{least[path]['percent']:g} %.",
                "fix": "Free space (crictl rmi --prune removes unused images) or enlarge the file system.",
            }


def _clock(synchronized: bool | None) -> Iterator[Finding]:
    if synchronized is False:
        yield {
            "severity": "warning",
            "what": "nothing keeps the clock right; certificates and the order of the nodes' logs depend on it.",
            "fix": "Start chrony or systemd-timesyncd and let it reach a server.",
        }
    elif synchronized is None:
        yield {
            "severity": "info",
            "what": "the kernel does not tell whether the clock is kept right.",
            "fix": "Look with `timedatectl`.",
        }


def version(text: str) -> tuple[int, ...]:
    """Major and minor number of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {"preflight_system_findings": system_findings}
