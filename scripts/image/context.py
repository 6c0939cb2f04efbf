"""What a build may see: a fresh folder with exactly the files it needs, alike whenever their content is alike."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts import command
from scripts.cache import REPO, cache_dir

TRAINER = Path(REPO, "trainer")
ALWAYS = ("train",)
"""Extras of pyproject.toml that each image has."""
NEVER = ("cluster",)
"""What is for the machine that the image is built on."""
FILE_TIME = 1_580_601_600
"""Modification time of every staged file (2020-02-02, as in the wheel), so that engines find their cached steps."""


class MissingToolError(RankzeroError):
    """A program that the preparation needs is not there."""


class UnknownExtraError(RankzeroError):
    """An image is to have what no extra of this project names."""


@contextmanager
def staging() -> Iterator[Path]:
    """An empty folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(dir=cache_dir("image"), prefix="build-") as folder:
        yield Path(folder)


def check_extras(names: Iterable[str]) -> tuple[str, ...]:
    """The extras of pyproject.toml that an image is to have besides, each once, in one order."""
    project = tomllib.loads(Path(REPO, "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = sorted(set(project["optional-dependencies"]) - {*ALWAYS, *NEVER})
    for name in names:
        if name not in allowed:
            raise UnknownExtraError(f"EXTRAS names {name!r}", hint=f"allowed: {', '.join(allowed)}")
    return tuple(sorted(set(names)))


def stage_trainer(folder: Path, extras: Iterable[str] = ()) -> None:
    """Fill ``folder`` with what ``trainer/Containerfile`` copies; ``extras`` add their packages."""
    for name in ("Containerfile", "compile_bytecode.py"):
        shutil.copy(TRAINER / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(TRAINER / "examples", folder / "examples", ignore=ignored)
    # The base's numpy stays the only one, as its torch does.
    selected = [word for name in (*ALWAYS, *extras) for word in ("--extra", name)]
    selection = requirements("--no-dev", *selected, "--no-emit-package", "numpy")
    (folder / "requirements.txt").write_text(selection, encoding="utf-8")
    with staging() as built:
        uv("build", "--wheel", "--quiet", "--out-dir", built)
        for wheel in built.glob("*.whl"):
            shutil.copy(wheel, folder)
    normalize(folder)


def requirements(*selection: str) -> str:
    """Part of ``uv.lock`` as a requirements file with hashes, without this project itself."""
    return uv("export", "--frozen", "--no-emit-project", "--no-header", "--no-annotate", *selection)


def locked_version(package: str) -> str:
    """The version of ``package`` in ``uv.lock``."""
    locked = tomllib.loads(Path(REPO, "uv.lock").read_text(encoding="utf-8"))["package"]
    version: str = next(one["version"] for one in locked if one["name"] == package)
    return version


def normalize(folder: Path) -> None:
    """Give everything below ``folder`` one time and plain permissions: neither may decide what a layer holds."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (FILE_TIME, FILE_TIME))


def uv(*arguments: str | Path) -> str:
    """Output of a uv command in this repository, with the cache of the project's own environment."""
    return command.run([find_uv(), *arguments], cwd=REPO, env={"UV_CACHE_DIR": str(cache_dir("uv"))})


def find_uv() -> Path:
    """The uv that started this process, that is on the PATH, or that `make bootstrap` put into the cache folder."""
    named = os.environ.get("UV") or shutil.which("uv")
    kept = sorted(cache_dir().glob("uv-*/bin/uv"), key=lambda path: path.stat().st_mtime)
    candidates = [Path(named)] if named else kept[-1:]
    if not candidates:
        raise MissingToolError("uv was not found", hint="run this through make, or install uv")
    return candidates[0]
