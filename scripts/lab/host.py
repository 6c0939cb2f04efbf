"""What the lab needs of this machine, and how podman is run on it.

Standard library only: `scripts/bootstrap.py` runs these checks before anything is installed.
"""

from __future__ import annotations

import functools
import os
import platform
import resource
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.cache import REPO, CacheFolderError, cache_dir, cache_root, claim

APT_PACKAGES = {
    "podman": "podman",
    "buildah": "buildah",
    "skopeo": "skopeo",
    "runc": "runc",
    "catatonit": "catatonit",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "openssh-client": "ssh",
}
"""Debian package -> a program that it brings, by which it is recognised."""
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
"""Shifts the wall clock of what preloads it: tests and drills step a node's clock with it."""
APT_PACKAGES_WITHOUT_PROGRAM = {
    "containernetworking-plugins": Path("/usr/lib/cni/bridge"),
    "debian-archive-keyring": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    "libfaketime": FAKETIME,
}
"""Debian package -> a file that it brings."""

CONTAINERS_ROOT = Path("/var/lib/containers")
PID_MAX = Path("/proc/sys/kernel/pid_max")
MAX_LIMIT = 1_048_576


@dataclass(frozen=True)
class DiskPart:
    """Something that takes disk space once."""

    name: str
    gigabytes: float
    path: Path
    """Where it is put."""
    elsewhere: str
    """How it is put on another disk, as the end of a sentence."""
    present: Callable[[], bool]


def disk_parts() -> list[DiskPart]:
    """What a fresh machine still has to hold: 40 GB in all. Sizes are measured, rounded up."""
    cache = cache_root()
    return [
        DiskPart(
            "the Python environment",
            8,
            REPO,
            "move this checkout to a larger disk",
            lambda: Path(REPO, ".venv", "pyvenv.cfg").exists(),
        ),
        DiskPart(
            "the compiled programs",
            14,
            cache,
            "set RANKZERO_CACHE to a folder on a larger disk",
            lambda: all(
                any(cache.glob(f"programs/{module.parent.name}-*"))
                for module in Path(REPO, "scripts/lab/programs").glob("*/go.mod")
            ),
        ),
        DiskPart(
            "the cluster and the trainer image",
            18,
            CONTAINERS_ROOT,
            f"mount a larger disk at {CONTAINERS_ROOT}",
            lambda: Path(cache, "lab", "kubeconfig").exists(),
        ),
    ]


def disk_problems(parts: Iterable[DiskPart]) -> list[str]:
    """One sentence for each file system that cannot hold the parts still missing."""
    by_device: dict[int, list[DiskPart]] = {}
    for part in parts:
        if not part.present():
            by_device.setdefault(_existing(part.path).stat().st_dev, []).append(part)
    problems = []
    for missing in by_device.values():
        place = _existing(missing[-1].path)
        free = shutil.disk_usage(place).free / 1e9
        needed = sum(part.gigabytes for part in missing)
        if free < needed:
            problems.append(
                f"The file system of {place} has {free:.0f} GB free, and {needed:.0f} GB are needed for "
                f"{' and '.join(part.name for part in missing)}: "
                f"free {needed - free:.0f} GB, or {', or '.join(part.elsewhere for part in missing)}."
            )
    return problems


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def cache_problems() -> list[str]:
    """The sentence about a cache folder that cannot be used, if it cannot."""
    try:
        claim()
    except CacheFolderError as error:
        return [str(error)]
    return []


def machine_problems() -> list[str]:
    """One sentence for each thing that keeps this machine from running the lab."""
    problems = []
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        problems.append(f"This machine is {system} {machine}, and the local cluster needs Linux x86_64.")
    if not shutil.which("apt-get"):
        problems.append("apt-get was not found: the local cluster needs Debian 12 or another Linux with apt.")
    problems += root_problems()
    if unusable := cache_problems():
        return problems + unusable
    return problems + disk_problems(disk_parts())


def root_problems() -> list[str]:
    """The sentence about missing rights, if they are missing."""
    if os.geteuid() == 0:
        return []
    return ["The local cluster runs system containers and needs root: run the same command with sudo -E."]


def removal_problems() -> list[str]:
    """One sentence for each thing that keeps the lab from being removed. Free disk is none: removing makes it."""
    missing = [program for program in ("podman", "buildah") if not shutil.which(program)]
    return root_problems() + [f"{program} was not found: apt-get install {program}." for program in missing]


def missing_apt_packages() -> list[str]:
    """The Debian packages that the lab needs and that are not installed."""
    return [package for package, program in APT_PACKAGES.items() if not shutil.which(program)] + [
        package for package, file in APT_PACKAGES_WITHOUT_PROGRAM.items() if not file.exists()
    ]


@functools.cache
def podman_env() -> dict[str, str]:
    """The environment of every podman and buildah command: a containers.conf of our own, this machine's is not read.

    runc, because Debian 12's crun refuses mixed v1 and v2 cgroups; limits no higher than this process's own,
    because podman's defaults cannot be set where root lacks CAP_SYS_RESOURCE (podman lowers its own nproc to
    pid_max as it starts).
    """
    limits = [
        f'"{name}={value}:{value}"'
        for name, value in (
            ("nofile", _hard_limit(resource.RLIMIT_NOFILE)),
            ("nproc", min(_hard_limit(resource.RLIMIT_NPROC), int(PID_MAX.read_text(encoding="ascii")))),
        )
    ]
    text = (
        "# Written by scripts/lab/host.py.\n"
        f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n"
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n'
    )
    path = cache_dir("podman") / "containers.conf"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return {"CONTAINERS_CONF": str(path)}


def _hard_limit(which: int) -> int:
    hard = resource.getrlimit(which)[1]
    return MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_LIMIT)
