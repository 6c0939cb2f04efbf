"""The stand-in base: Debian and the locked PyTorch from package registries, for machines without a registry."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts import command
from scripts.cache import cache_dir
from scripts.image import host_network
from scripts.image.context import TRAINER, locked_version, normalize, requirements, staging
from scripts.image.engine import Build, Engine, build_command, store_command
from scripts.stages import Stages

REPOSITORY = "localhost/rankzero/pytorch-base"
FOLDER = TRAINER / "base"
DEBIAN = "bookworm"
NOT_UNPACKED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
"""Files of Debian packages that no program reads."""
DISK_GB = 14
"""Free space that building the stand-in needs for a moment: the downloads, PyTorch untrimmed, and the result."""


class DiskError(RankzeroError):
    """There is no room to build the stand-in."""


def provide(engine: Engine, environ: Mapping[str, str], stages: Stages, log: Path) -> str:
    """Build the stand-in base, or find the one that the same inputs gave before; returns its reference."""
    torch_requirements = requirements("--only-group", "torch")
    torch_version = locked_version("torch")
    reference = f"{REPOSITORY}:{torch_version}-{inputs_hash(torch_requirements)}"
    if engine.has(reference):
        return reference
    check_disk(engine)
    with staged(torch_requirements, stages, log) as context, staging() as private:
        build = Build(
            context=context,
            tag=reference,
            args={"TORCH_VERSION": torch_version},
            secrets=host_network.secrets(environ, private),
            from_environment=host_network.proxies(environ),
            cached=False,
        )
        with stages(f"stand-in base: install PyTorch {torch_version} and trim it"):
            stages.detail(f"log: {log}")
            engine.run(build_command(engine.name, build), log=log)
    return reference


def inputs_hash(torch_requirements: str) -> str:
    """The first 12 hexadecimal digits of the SHA-256 over all that decides what the stand-in holds."""
    digest = hashlib.sha256("\0".join([torch_requirements, DEBIAN, *NOT_UNPACKED]).encode())
    for path in own_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def own_files() -> list[Path]:
    """The files of this repository that make the stand-in."""
    own = sorted(path for path in FOLDER.iterdir() if path.is_file())
    return [*own, TRAINER / "compile_bytecode.py"]


@contextmanager
def staged(torch_requirements: str, stages: Stages, log: Path) -> Iterator[Path]:
    """The stand-in's build context; its Debian root file system is unpacked here."""
    with staging() as context:
        for path in own_files():
            shutil.copy(path, context)
        (context / "requirements.txt").write_text(torch_requirements, encoding="utf-8")
        packages = (FOLDER / "packages.txt").read_text(encoding="utf-8").split()
        with stages("stand-in base: Debian"):
            stages.detail(f"log: {log}")
            command.run(debian_command(packages, context / "rootfs.tar"), log=log, hint=f"read {log}; needs mmdebstrap")
        normalize(context)
        yield context


def debian_command(packages: list[str], target: Path) -> list[str]:
    """The command line that packs a Debian root file system with ``packages``."""
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in NOT_UNPACKED]
    return ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", *excluded, DEBIAN, str(target)]


def check_disk(engine: Engine) -> None:
    """Raise where the engine's store, if it is a folder of this machine, cannot hold the stand-in while it is built."""
    store = Path(engine.run(store_command(engine.name)).strip())
    for folder in {store, cache_dir("image")}:
        if folder.is_dir() and (free := shutil.disk_usage(folder).free / 1e9) < DISK_GB:
            raise DiskError(
                f"{folder} has {free:.0f} GB free, and building the stand-in base takes {DISK_GB} GB",
                hint="free some space there: `podman system df` shows what images take",
            )
