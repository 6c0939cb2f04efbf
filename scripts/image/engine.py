"""The three container engines: how each is found, and the command lines that differ between them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from rankzero.errors import RankzeroError
from scripts import command
from scripts.image.reference import is_loopback
from scripts.lab.host import podman_env

EngineName = Literal["podman", "docker", "buildah"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
"""In the order in which they are looked for."""


class EngineError(RankzeroError):
    """No container engine can be used, or the one asked for cannot."""


@dataclass(frozen=True)
class Build:
    """One image build: the folder with its ``Containerfile``, and what goes in."""

    context: Path
    tag: str
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Not LABEL lines with arguments in the Containerfile: podman 4 would reuse such a step with its old values."""
    secrets: Mapping[str, Path] = field(default_factory=dict)
    """Files that the build may read and the image never holds, by their id."""
    from_environment: tuple[str, ...] = ()
    """Build arguments whose values the engine reads from its own environment, so that no process list shows them."""
    cached: bool = True
    """Whether steps of earlier builds are reused. False also leaves no image of an intermediate step behind."""


@dataclass(frozen=True)
class ImageFacts:
    """What an engine knows about an image it holds."""

    id: str
    digest: str
    size_bytes: int


def build_command(engine: EngineName, build: Build) -> list[str]:
    """The command line that builds ``build`` with ``engine``."""
    containerfile = str(build.context / "Containerfile")
    words: list[str] = [engine, "build", "--file", containerfile, "--tag", build.tag, "--network", "host"]
    if engine == "docker":
        words += [] if build.cached else ["--no-cache"]
    else:
        words += ["--pull=never", f"--layers={str(build.cached).lower()}"]
    for name, value in build.args.items():
        words += ["--build-arg", f"{name}={value}"]
    for name, value in build.labels.items():
        words += ["--label", f"{name}={value}"]
    for name in build.from_environment:
        words += ["--build-arg", name]
    for name, path in build.secrets.items():
        words += ["--secret", f"id={name},src={path}"]
    return [*words, str(build.context)]


def pull_command(engine: EngineName, reference: str) -> list[str]:
    """The command line that fetches an image."""
    return [engine, "pull", reference]


def push_command(engine: EngineName, reference: str) -> list[str]:
    """The command line that uploads an image. docker accepts a registry of this machine without TLS by itself."""
    plain = ["--tls-verify=false"] if engine != "docker" and is_loopback(reference) else []
    return [engine, "push", *plain, reference]


def inspect_command(engine: EngineName, reference: str) -> list[str]:
    """The command line that describes a local image as JSON; fails where there is none."""
    kind = ["inspect", "--type", "image"] if engine == "buildah" else ["image", "inspect"]
    return [engine, *kind, reference]


def read_inspection(engine: EngineName, text: str) -> ImageFacts:
    """Understand the output of :func:`inspect_command`. The size is that of all layers, uncompressed, in bytes."""
    document = json.loads(text)
    if engine == "buildah":
        layers = json.loads(document["Manifest"])["layers"]
        return ImageFacts(
            id=with_algorithm(document["FromImageID"]),
            digest=document["FromImageDigest"],
            size_bytes=sum(layer["size"] for layer in layers),
        )
    (image,) = document
    digests = [one.partition("@")[2] for one in image.get("RepoDigests") or []]
    identity = with_algorithm(image["Id"])
    # docker knows no digest of an image that never was in a registry; its id is what then names the content.
    return ImageFacts(
        id=identity, digest=image.get("Digest") or next(iter(digests), identity), size_bytes=image["Size"]
    )


def with_algorithm(digest: str) -> str:
    """podman and buildah print image ids without ``sha256:``, docker with it."""
    return digest if digest.startswith("sha256:") else f"sha256:{digest}"


def store_command(engine: EngineName) -> list[str]:
    """The command line that prints the folder in which the engine keeps images."""
    form = {
        "podman": "{{.Store.GraphRoot}}",
        "docker": "{{.DockerRootDir}}",
        "buildah": '{{index .store "GraphRoot"}}',
    }[engine]
    return [engine, "info", "--format", form]


@dataclass(frozen=True)
class Engine:
    """A container engine that answered on this machine."""

    name: EngineName

    def run(self, words: list[str], *, log: Path | None = None, hint: str = "") -> str:
        """Run one of the command lines above with the environment that this engine needs."""
        return command.run(words, env=environment(self.name), log=log, hint=hint)

    def facts(self, reference: str) -> ImageFacts:
        """Describe a local image; raises CommandError where there is none of that name."""
        return read_inspection(self.name, self.run(inspect_command(self.name, reference)))

    def has(self, reference: str) -> bool:
        """Whether the image is on this machine."""
        try:
            self.run(inspect_command(self.name, reference))
        except command.CommandError:
            return False
        return True


def environment(engine: EngineName) -> dict[str, str]:
    """What an engine needs in its environment. Root's podman gets the lab's settings, so both see the same images."""
    if engine == "docker":
        return {"DOCKER_BUILDKIT": "1"}
    return podman_env() if os.geteuid() == 0 and shutil.which("runc") else {}


def find(name: str = "") -> Engine:
    """The engine called ``name`` (podman, docker, buildah), or the first of them that answers."""
    if name and name not in ENGINES:
        raise EngineError(f"ENGINE is {name!r}", hint=f"use one of {', '.join(ENGINES)}, or leave it unset")
    reasons = []
    for candidate in (name,) if name else ENGINES:
        try:
            command.run([candidate, "version"], env=environment(candidate), timeout=30)
        except command.CommandError as error:
            reasons.append(error.message)
        else:
            return Engine(candidate)
    raise EngineError(
        "no container engine answers:\n  " + "\n  ".join(reasons),
        hint="install one (`apt-get install podman`), or start docker's daemon",
    )
