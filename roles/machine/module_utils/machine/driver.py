"""The NVIDIA driver: what is loaded, what is installed, and for which kernels it was built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import files

PATTERNS = ("nvidia-*", "libnvidia-*", "cuda-drivers*", "cuda-compat-*", "linux-modules-nvidia-*", "kmod-nvidia*")
"""Packages that belong to the driver or have to match it."""

DPKG = ("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}|${Package}|${Version}\\n", *PATTERNS)
"""Ends with status 1 where one pattern fits nothing, and still lists what fits the others."""
RPM = ("rpm", "--query", "--all", "--queryformat=ii|%{NAME}|%{VERSION}\\n", *PATTERNS)

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")

MAIN_PACKAGES = (
    *(r"libnvidia-compute(-\d+.*)?", r"libnvidia-ml1?", r"nvidia-driver-(cuda-)?libs"),
    *(r"nvidia-driver(-.*)?", r"cuda-drivers(-\d+)?", r"nvidia-open(-\d+)?"),
)
"""Packages that have the driver's version, the one with the libraries first."""

VERSION = re.compile(r"(?<![\d.])\d{3}\.\d+(?:\.\d+)?(?![\d.])")


def driver(root: Path, packages: Mapping[str, str], states: Mapping[str, str]) -> dict[str, Any]:
    """``states`` gives for nvidia-persistenced and nvidia-fabricmanager active, inactive or absent."""
    told = files.text(root / "proc/driver/nvidia/version")
    loaded = VERSION.search(told)
    return {
        "loaded": loaded[0] if loaded else None,
        "kind": ("open" if "Open Kernel Module" in told else "proprietary") if loaded else None,
        "installed": _library_version(root) or _package_version(packages),
        "packages": dict(packages),
        "modules": loaded_modules(root),
        "dkms": dkms(root),
        "built": built(root),
        "persistenced": states["nvidia-persistenced"],
        "fabricmanager": {"state": states["nvidia-fabricmanager"], "version": _fabric_manager_version(packages)},
    }


def parse_packages(listing: str) -> dict[str, str]:
    """Version by name of the packages that are installed, from what :data:`DPKG` or :data:`RPM` prints."""
    rows = [line.split("|") for line in listing.splitlines() if line.count("|") == 2]
    return {name: version for state, name, version in rows if state[1:2] == "i"}


def plain_version(version: str) -> str | None:
    """The driver's version in that of a package, which may have an epoch and a revision."""
    found = VERSION.search(version.partition(":")[2] or version)
    return found[0] if found else None


def _library_version(root: Path) -> str | None:
    """The version of the library that programs load, from what its link leads to, however it was installed."""
    for folder in LIBRARY_FOLDERS:
        target = files.link_name(root / folder / LIBRARY)
        if target and VERSION.search(target.partition(".so.")[2]):
            return target.partition(".so.")[2]
    return None


def _package_version(packages: Mapping[str, str]) -> str | None:
    for pattern in MAIN_PACKAGES:
        versions = [plain_version(packages[name]) for name in sorted(packages) if re.fullmatch(pattern, name)]
        if any(versions):
            return next(version for version in versions if version)
    return None


def _fabric_manager_version(packages: Mapping[str, str]) -> str | None:
    names = [name for name in sorted(packages) if re.fullmatch(r"nvidia-fabric-?manager(-\d+)?", name)]
    return plain_version(packages[names[0]]) if names else None


def loaded_modules(root: Path) -> list[str]:
    """Modules of NVIDIA's driver and of nouveau that the kernel has loaded. What is built in has no ``initstate``."""
    names = [folder.name for folder in files.entries(root / "sys/module") if (folder / "initstate").exists()]
    return [name for name in names if name.startswith("nvidia") or name == "nouveau"]


def dkms(root: Path) -> list[str]:
    """What DKMS has of the driver, as ``dkms status`` writes it (which takes a second for it)."""
    source = root / "var/lib/dkms/nvidia"
    lines = []
    for version in files.entries(source):
        if version.is_symlink() or not version.is_dir():
            continue
        builds = sorted(path.parent for path in version.glob("*/*/module"))
        if not builds:
            lines.append(f"nvidia/{version.name}: added")
        for build in builds:
            kernel, arch = build.parent.name, build.name
            active = source / f"kernel-{kernel}-{arch}"
            installed = active.is_symlink() and active.resolve() == build.resolve()
            lines.append(f"nvidia/{version.name}, {kernel}, {arch}: {'installed' if installed else 'built'}")
    return lines


def built(root: Path) -> list[str]:
    """Kernel releases for which depmod knows a module nvidia, DKMS's or a precompiled one."""
    return [
        folder.name
        for folder in files.entries(root / "lib/modules")
        if re.search(r"(^|/)nvidia\.ko(\.\w+)?:", files.text(folder / "modules.dep"), re.MULTILINE)
    ]
