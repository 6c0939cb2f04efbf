"""The image that the trainer is built on: the pinned production base, the local stand-in, or any other by name."""

from __future__ import annotations

import queue
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts.image import stand_in
from scripts.image.context import TRAINER
from scripts.image.engine import Engine, pull_command
from scripts.image.reference import DOCKER_HUB, LOOPBACK, check_base, registry_of, short_hash
from scripts.stages import Stages

REGISTRY_DEADLINE = 10.0
"""Seconds that a registry has to answer."""


class BaseImageError(RankzeroError):
    """The base image cannot be had."""


@dataclass(frozen=True)
class Base:
    """A base image that is on this machine."""

    reference: str
    digest: str
    mark: str
    """Tells images on this base from those on the production base, in the default tag; empty for the latter."""


def production() -> str:
    """The production base: the default that ``trainer/Containerfile`` gives its BASE_IMAGE."""
    text = (TRAINER / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG BASE_IMAGE=(\S+)$", text, re.MULTILINE)
    assert found, "trainer/Containerfile gives BASE_IMAGE no default"
    return check_base(found[1])


def provide(choice: str, engine: Engine, environ: Mapping[str, str], stages: Stages, log: Path) -> Base:
    """Bring the base called ``choice`` (production, local, auto, or a reference) to this machine."""
    if choice == "auto":
        choice = choose(engine, stages)
    if choice == "local":
        reference = stand_in.provide(engine, environ, stages, log)
    else:
        reference = production() if choice == "production" else check_base(choice)
        provide_pulled(reference, engine, stages, log)
    mark = "" if reference == production() else short_hash(reference.encode())
    _, _, digest = reference.partition("@")
    return Base(reference, digest or engine.facts(reference).digest, mark)


def choose(engine: Engine, stages: Stages) -> str:
    """production where it can be had, else local; says which and why."""
    reference = production()
    registry = registry_of(reference)
    if engine.has(reference):
        stages.console.print("base: production, which is on this machine already")
        return "production"
    if answers(registry):
        stages.console.print(f"base: production, {registry} answers")
        return "production"
    stages.console.print(f"base: local, {registry} does not answer")
    return "local"


def provide_pulled(reference: str, engine: Engine, stages: Stages, log: Path) -> None:
    """Pull ``reference`` unless this machine has it."""
    if engine.has(reference):
        return
    registry = registry_of(reference)
    if not answers(registry):
        raise BaseImageError(
            f"the registry {registry} does not answer, and the base {reference} is not on this machine",
            hint="connect this machine to the registry, or build with BASE=local (runs without a GPU only)",
        )
    with stages(f"pull {reference}"):
        engine.run(pull_command(engine.name, reference), log=log)


def answers(registry: str, deadline: float = REGISTRY_DEADLINE) -> bool:
    """Whether a registry answers like one within ``deadline`` seconds; asking for a login (401) counts."""
    host = "registry-1.docker.io" if registry == DOCKER_HUB else registry
    scheme = "http" if host.partition(":")[0] in LOOPBACK else "https"
    result: queue.Queue[bool] = queue.Queue()
    # A thread, because neither a name lookup nor a slowly trickling answer ends at urlopen's own time-out.
    threading.Thread(target=lambda: result.put(_asked(f"{scheme}://{host}/v2/", deadline)), daemon=True).start()
    try:
        return result.get(timeout=deadline)
    except queue.Empty:
        return False


def _asked(url: str, timeout: float) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=timeout):  # noqa: S310 -- the scheme is set above
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
