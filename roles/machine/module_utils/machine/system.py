"""The operating system and what the machine has of memory, disk and time."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any

from . import boot, files

SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""UEFI's global variable: 4 bytes of attributes, then 1 where secure boot is on."""

DISKS = ("/", "/var/lib/kubelet")
"""Folders that fill up with logs and volumes."""

FAMILIES = {"debian": "Debian", "ubuntu": "Debian", "rhel": "RedHat", "fedora": "RedHat", "centos": "RedHat"}

MAX_CLOCK_ERROR = 16_000_000
"""Microseconds. The kernel's estimate of the clock's error grows without an NTP client and stops at this; systemd's
timedated calls a clock with less synchronized."""


def operating_system(root: Path) -> dict[str, Any]:
    """What /etc/os-release says. ``family`` is empty for one that is kin to neither Debian nor Red Hat."""
    values = {}
    for line in files.text(root / "etc/os-release").splitlines():
        key, _, value = line.partition("=")
        values[key] = value.strip("\"'")
    kin = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    return {
        "id": values.get("ID", ""),
        "version": values.get("VERSION_ID", ""),
        "codename": values.get("VERSION_CODENAME", ""),
        "family": next((FAMILIES[name] for name in kin if name in FAMILIES), ""),
        "name": values.get("PRETTY_NAME", ""),
    }


def kernel(root: Path, release: str, arch: str) -> dict[str, Any]:
    """The running kernel, those that may boot, newest first, and which of them boots ``next`` (None: not certain).

    A folder of modules without its kernel is what removed packages leave behind, so it counts only where no kernel is
    found at all, as in a container.
    """
    folders = [path for path in files.entries(root / "lib/modules") if path.is_dir()]
    bootable = [
        path for path in folders if (root / "boot" / f"vmlinuz-{path.name}").exists() or (path / "vmlinuz").exists()
    ]
    releases = sorted((path.name for path in bootable), key=_version_key, reverse=True)
    return {
        "release": release,
        "arch": arch,
        "cmdline": files.text(root / "proc/cmdline"),
        "installed": releases or sorted((path.name for path in folders), key=_version_key, reverse=True),
        "next": boot.next_kernel(root, releases),
        "headers": sorted((path.name for path in folders if (path / "build").is_dir()), key=_version_key, reverse=True),
    }


def _version_key(release: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|[a-z]+", release)]


def cgroup_version(root: Path) -> int:
    """2 where /sys/fs/cgroup is the unified hierarchy, else 1 (mixed ones included, which the kubelet treats as v1)."""
    return 2 if (root / "sys/fs/cgroup/cgroup.controllers").exists() else 1


def secure_boot(root: Path) -> bool | None:
    """Whether the firmware checks signatures; None where it does not tell. Without UEFI there is no secure boot."""
    if not (root / "sys/firmware/efi").exists():
        return False
    try:
        return (root / "sys/firmware/efi/efivars" / SECURE_BOOT).read_bytes()[4] == 1
    except (OSError, IndexError):
        return None


def memory_mib(root: Path) -> int:
    """MemTotal of /proc/meminfo in MiB, 0 where it is not there."""
    return meminfo_total(files.text(root / "proc/meminfo"))


def meminfo_total(meminfo: str) -> int:
    """MemTotal in MiB of the machine's or one NUMA node's meminfo."""
    found = re.search(r"MemTotal:\s+(\d+) kB", meminfo)
    return int(found[1]) // 1024 if found else 0


def hugepages(root: Path) -> list[dict[str, int]]:
    """Huge pages that are set aside, by size and NUMA node."""
    nodes = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    pools = [(int(node.name[4:]), node / "hugepages") for node in nodes] or [(0, root / "sys/kernel/mm/hugepages")]
    found = []
    for node, folder in pools:
        for pool in files.entries(folder):
            size = re.fullmatch(r"hugepages-(\d+)kB", pool.name)
            if size:
                found.append(
                    {"size_kib": int(size[1]), "total": files.number(pool / "nr_hugepages") or 0, "node": node}
                )
    return found


def disks(root: Path, images: str) -> list[dict[str, Any]]:
    """Free and total MiB of the file systems that hold :data:`DISKS`, where these are there, and the ``images``.

    The folder of the images need not be there yet: what is above it tells on which file system it will be.
    """
    found = []
    for path in (*DISKS, images):
        place = root / path.lstrip("/")
        while path == images and not place.exists() and place != root:
            place = place.parent
        try:
            file_system = os.statvfs(place)
        except OSError:
            continue
        mib = file_system.f_frsize / 2**20
        found.append(
            {"path": path, "free_mib": int(file_system.f_bavail * mib), "total_mib": int(file_system.f_blocks * mib)}
        )
    return found


def clock_synchronized() -> bool | None:
    """Whether something keeps the kernel's clock right, whichever NTP client that is; None where it does not tell."""
    timex = (ctypes.c_long * 26)()  # struct timex of a 64-bit system; no mode bits: reads only
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        return None
    return None if state < 0 else timex[3] < MAX_CLOCK_ERROR
