"""From the choices on the command line to a tagged image: the order of the steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from scripts.cache import cache_dir
from scripts.image import base as bases
from scripts.image import engine as engines
from scripts.image import host_network, reference
from scripts.image.context import check_extras, stage_trainer, staging
from scripts.image.engine import Build, build_command, push_command
from scripts.stages import Stages


@dataclass(frozen=True)
class Choices:
    """What a person may choose; empty means: find out."""

    engine: str = ""
    base: str = "production"
    repository: str = "localhost/rankzero/trainer"
    tag: str = ""
    push: bool = False
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Image:
    """The finished image, as ``-o json`` prints it."""

    reference: str
    id: str
    size_bytes: int
    """All layers, uncompressed, base included."""
    base: str
    seconds: float
    """From start to end, a push included."""


def build_image(choices: Choices, environ: Mapping[str, str], stages: Stages) -> Image:
    """Check the choices, provide the base, build, and push if asked."""
    began = time.monotonic()
    repository = reference.check_repository(choices.repository)
    if choices.tag:
        reference.check_tag(choices.tag)
    if choices.push:
        reference.check_pushable(repository)
    if choices.base not in ("production", "local", "auto"):
        reference.check_base(choices.base)
    extras = check_extras(choices.extras)
    engine = engines.find(choices.engine)
    log = cache_dir("logs") / "image.log"
    log.write_text("", encoding="utf-8")

    base = bases.provide(choices.base, engine, environ, stages, log)
    name = f"{repository}:{choices.tag or reference.default_tag(base.mark, extras)}"
    with stages(f"trainer image with {engine.name}"), staging() as context, staging() as private:
        stages.detail(f"log: {log}")
        stage_trainer(context, extras)
        build = Build(
            context=context,
            tag=name,
            args={"BASE_IMAGE": base.reference},
            labels=labels(base),
            secrets=host_network.secrets(environ, private),
            from_environment=host_network.proxies(environ),
        )
        engine.run(build_command(engine.name, build), log=log)
    if choices.push:
        with stages(f"push {name}"):
            stages.detail(f"log: {log}")
            engine.run(push_command(engine.name, name), log=log)
    facts = engine.facts(name)
    return Image(name, facts.id, facts.size_bytes, base.reference, round(time.monotonic() - began, 1))


def labels(base: bases.Base) -> dict[str, str]:
    """What the image says about itself, in the names of the OCI image specification."""
    values = {
        "title": "rankzero trainer",
        "description": "PyTorch, the rankzero launcher and its examples",
        "version": reference.project_version(),
        "revision": reference.revision(),
        "source": reference.source(),
        "base.name": base.reference,
        "base.digest": base.digest,
    }
    return {f"org.opencontainers.image.{name}": value for name, value in values.items() if value}
