"""NVIDIA's device files, the links that keep them in containers, the container toolkit and its CDI specifications."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

RUNTIMES = ("/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime")
"""Where the packages and the GPU operator put it; K3s looks in the same places."""
CTK = "/usr/bin/nvidia-ctk"
UNNAMED = ("nvidia-fs", "nvidia-nvlink", "nvidia-nvswitch")
"""Device files that no container of a job is given, and that nvidia-ctk does not name in /dev/char."""
CDI_FOLDERS = ("etc/cdi", "run/cdi")


def devices(root: Path) -> list[str]:
    """The device files below /dev by which containers reach GPUs.

    Without the channels of nvidia-caps-imex-channels: they are made one by one for jobs across nodes (GB200), and no
    part of nvidia-ctk names them in /dev/char.
    """
    folder = root / "dev"
    names = [*folder.glob("nvidia*"), *folder.glob("nvidia-caps/*")]
    names = [path for path in names if not path.name.startswith(UNNAMED)]
    return sorted(f"/{path.relative_to(root)}" for path in names if stat.S_ISCHR(path.stat().st_mode))


def links(root: Path, paths: list[str]) -> dict[str, Path]:
    """By device file, the link in /dev/char by which systemd knows it."""
    numbers = {path: (root / path.lstrip("/")).stat().st_rdev for path in paths}
    folder = root / "dev/char"
    return {path: folder / f"{os.major(number)}:{os.minor(number)}" for path, number in numbers.items()}


def cut_off_by_reload(root: Path, paths: list[str]) -> int:
    """How many containers a reload of systemd may cut off their GPUs.

    A container's rules name devices by their links, and those without one are left out when the container is made.
    So a container counts that was started before the last link was there (NVIDIA/nvidia-container-toolkit#48).
    """
    if not paths:
        return 0
    made = [link.lstat().st_mtime if link.is_symlink() else float("inf") for link in links(root, paths).values()]
    return sum(started < max(made) for started in _shims(root))


def _shims(root: Path) -> Iterator[float]:
    """When each container's shim was started, in seconds since the epoch."""
    booted = re.search(r"^btime (\d+)", (root / "proc/stat").read_text(encoding="ascii"), re.MULTILINE)
    for process in (root / "proc").glob("[0-9]*"):
        try:
            name, _, values = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:  # ended meanwhile
            continue
        if booted and re.search(r"\((containerd-shim|conmon)", name):
            # The 22nd value; the two before the bracket are cut off (proc_pid_stat(5)).
            yield int(booted[1]) + int(values.split()[19]) / os.sysconf("SC_CLK_TCK")


def toolkit_runtime(root: Path, binary: str) -> str:
    """The path of nvidia-container-runtime, ``binary`` or else a usual place; empty where it is not there."""
    return next((path for path in ([binary] if binary else RUNTIMES) if (root / path.lstrip("/")).exists()), "")


def parse_version(output: str) -> str:
    """The version that ``nvidia-ctk --version`` tells."""
    found = re.search(r"\d+\.\d+\.\d+(?:-[\w.]+)?", output)
    return found[0] if found else ""


def specifications(root: Path) -> list[dict[str, str]]:
    """The CDI specifications of GPUs: ``path``, and the version of the ``driver`` whose libraries it has."""
    found = []
    for path in (file for folder in CDI_FOLDERS for file in sorted((root / folder).glob("*"))):
        text = path.read_text(encoding="utf-8", errors="replace") if path.suffix in (".yaml", ".json") else ""
        if re.search(r"kind\"?:\s*\"?nvidia\.com/gpu\b", text):
            library = re.search(r"libcuda\.so\.(\d[\d.]+\d)", text)
            found.append({"path": f"/{path.relative_to(root)}", "driver": library[1] if library else ""})
    return found
