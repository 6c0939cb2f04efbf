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

from scripts.cache import REPO, cache_dir

APT_PACKAGES = {
    "podman": "podman",
    "buildah": "buildah",
    "skopeo": "skopeo",
    "runc": "runc",
    "catatonit": "catatonit",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "conntrack": "conntrack",
}
"""Debian package -> a program that it brings, by which it is recognised."""
APT_PACKAGES_WITHOUT_PROGRAM = {
    "containernetworking-plugins": Path("/usr/lib/cni/bridge"),
    "debian-archive-keyring": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
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
    present: Callable[[], bool]


def disk_parts() -> list[DiskPart]:
    """What a fresh machine still has to hold: 40 GB in all. Sizes are measured, rounded up."""
    cache = cache_dir()
    return [
        DiskPart("the Python environment", 8, REPO, lambda: Path(REPO, ".venv", "pyvenv.cfg").exists()),
        DiskPart(
            "the compiled programs",
            14,
            cache,
            lambda: all(
                any(cache.glob(f"programs/{module.parent.name}-*"))
                for module in Path(REPO, "scripts/lab/programs").glob("*/go.mod")
            ),
        ),
        DiskPart(
            "the cluster and the trainer image",
            18,
            CONTAINERS_ROOT,
            lambda: Path(cache, "lab", "kubeconfig").exists(),
        ),
    ]


def disk_problems(parts: Iterable[DiskPart]) -> list[str]:
    """One sentence for each file system that cannot hold the parts still missing."""
    wanted: dict[int, tuple[Path, float]] = {}
    for part in parts:
        if not part.present():
            place = _existing(part.path)
            device = place.stat().st_dev
            wanted[device] = (place, wanted.get(device, (place, 0.0))[1] + part.gigabytes)
    problems = []
    for place, gigabytes in wanted.values():
        free = shutil.disk_usage(place).free / 1e9
        if free < gigabytes:
            problems.append(
                f"The file system of {place} has {free:.0f} GB free, and {gigabytes:.0f} GB are needed: "
                f"free {gigabytes - free:.0f} GB, or point RANKZERO_CACHE at a larger disk."
            )
    return problems


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def machine_problems() -> list[str]:
    """One sentence for each thing that keeps this machine from running the lab."""
    problems = []
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        problems.append(f"This machine is {system} {machine}, and the local cluster needs Linux x86_64.")
    if not shutil.which("apt-get"):
        problems.append("apt-get was not found: the local cluster needs Debian 12 or another Linux with apt.")
    if os.geteuid() != 0:
        problems.append("The local cluster runs system containers and needs root: run the same command with sudo -E.")
    return problems + disk_problems(disk_parts())


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
