"""Checks this machine and installs what is missing: `python3 -m scripts.bootstrap [--tools-only]`.

Needs nothing but Python's standard library. Every problem is found before anything is changed.
"""

import sys

# Kept to syntax that Python 3.6 reads, so that an old one prints this sentence and not a SyntaxError.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        f"Python 3.11 or newer is needed, and {sys.executable} is {sys.version.split()[0]}: "
        "install one and run make with PYTHON=/path/to/it."
    )

import argparse
import importlib.util
import os
import shutil
import subprocess
import time
import venv
from pathlib import Path

from scripts.cache import REPO, cache_dir
from scripts.lab.host import cache_problems, disk_parts, disk_problems, machine_problems, missing_apt_packages

UV_VERSION = "0.13.9"
ENVIRONMENT = REPO / ".venv"


def uv_program() -> Path:
    """Where the pinned uv is, or will be, kept."""
    return cache_dir() / f"uv-{UV_VERSION}" / "bin" / "uv"


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 when everything is there, 1 with sentences on standard error when it cannot be."""
    parser = argparse.ArgumentParser(prog="python3 -m scripts.bootstrap", description=__doc__)
    parser.add_argument(
        "--tools-only",
        action="store_true",
        help="the Python environment only (for test-fast, lint and an existing cluster): neither root nor apt",
    )
    tools_only = parser.parse_args(arguments).tools_only
    problems = find_problems(tools_only=tools_only)
    if problems:
        _say("\n  - ".join(["This machine is not ready:", *problems]))
        return 1
    try:
        if not tools_only:
            install_apt_packages()
        install_uv()
        sync_environment()
    except subprocess.CalledProcessError as error:
        _say(f"`{' '.join(map(str, error.cmd))}` ended with status {error.returncode}; its reason stands above.")
        return 1
    return 0


def find_problems(*, tools_only: bool) -> list[str]:
    """One sentence for each thing that is missing here and that this program cannot install."""
    unusable = cache_problems()
    problems = (unusable or disk_problems(disk_parts()[:1])) if tools_only else machine_problems()
    needs_venv = not unusable and not uv_program().exists()
    if needs_venv and not _has_ensurepip() and (tools_only or os.geteuid() != 0):
        problems.append("Python's venv module is incomplete: install it with `apt-get install python3-venv`.")
    return problems


def install_apt_packages() -> None:
    """Install the missing Debian packages, if any."""
    packages = missing_apt_packages()
    if not _has_ensurepip():
        packages.append("python3-venv")
    if packages:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _step("apt: package lists", ["apt-get", "update", "--quiet=2"], environment)
        command = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *packages]
        _step(f"apt: {' '.join(packages)}", command, environment)


def install_uv() -> None:
    """Install the pinned uv from PyPI into an environment of its own in the cache folder."""
    uv = uv_program()
    if uv.exists():
        return
    home = uv.parent.parent
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    _step(f"uv {UV_VERSION}", [str(home / "bin" / "pip"), "install", "--quiet", f"uv=={UV_VERSION}"])


def sync_environment() -> None:
    """Bring .venv to the state of uv.lock; skipped when neither it nor pyproject.toml has changed since."""
    stamp = ENVIRONMENT / ".synced"
    inputs = [REPO / "uv.lock", REPO / "pyproject.toml"]
    wanted = "".join(f"{file.name} {file.stat().st_mtime_ns}\n" for file in inputs)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    command = [
        str(uv_program()),
        "sync",
        "--locked",
        "--extra",
        "cluster",
        "--extra",
        "train",
        "--python",
        sys.executable,
    ]
    _step("Python environment", command, {**os.environ, "UV_CACHE_DIR": str(cache_dir("uv"))})
    stamp.write_text(wanted, encoding="utf-8")


def _has_ensurepip() -> bool:
    """Debian ships Python without it; python3-venv brings it."""
    return importlib.util.find_spec("ensurepip") is not None


def _step(name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
    _say(f"...  {name}")
    began = time.monotonic()
    subprocess.run(command, env=environment, cwd=REPO, check=True)
    _say(f"done {name}  {time.monotonic() - began:.1f} s")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
