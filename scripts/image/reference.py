"""Image references and tags: a tag never names two contents, so `latest` and its like are refused."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from rankzero.errors import RankzeroError
from scripts import command
from scripts.cache import REPO

TAG_FORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
IMAGE_INPUTS = ("pyproject.toml", "uv.lock", "README.md", "trainer", "scripts/image")
"""What the image is made from. A change elsewhere (docs, charts) does not make it another image."""
DOCKER_HUB = "docker.io"
LOOPBACK = ("localhost", "127.0.0.1")
"""Registries of this machine, which speak without TLS."""


class ImageNameError(RankzeroError):
    """An image reference or tag that would not name exactly one content."""


def split(reference: str) -> tuple[str, str, str]:
    """``registry/name:tag@digest`` -> (``registry/name``, ``tag``, ``digest``); what is absent is empty."""
    rest, _, digest = reference.partition("@")
    folder, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{folder}{slash}{name}", tag, digest


def as_values(reference: str) -> dict[str, str]:
    """The chart's `image` values for a reference."""
    return dict(zip(("repository", "tag", "digest"), split(reference), strict=True))


def registry_of(reference: str) -> str:
    """The registry that a reference names; Docker Hub where it names none, as every engine takes it."""
    first, slash, _ = split(reference)[0].partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def is_loopback(reference: str) -> bool:
    """Whether the registry runs on this machine, where engines accept it without TLS."""
    return registry_of(reference).partition(":")[0] in LOOPBACK


def check_tag(tag: str) -> str:
    """Return ``tag``, or raise where it is no tag or the moving one."""
    if tag == "latest":
        raise ImageNameError(
            "the tag `latest` names another image every day",
            hint="leave TAG unset, or set TAG to a version such as 1.4.0",
        )
    if not TAG_FORM.fullmatch(tag):
        raise ImageNameError(f"TAG is {tag!r}", hint="use up to 128 letters, digits, `_`, `.` and `-`")
    return tag


def check_base(reference: str) -> str:
    """Return a base image's ``reference``, or raise where it does not name one version."""
    _, tag, digest = split(reference)
    if not digest and tag in ("", "latest"):
        raise ImageNameError(
            f"BASE is {reference!r}, which names another image every day",
            hint="give it a version tag or, better, a digest: name:tag@sha256:...",
        )
    return reference


def check_repository(repository: str) -> str:
    """Return ``repository``, or raise where it already carries a tag or digest."""
    name, tag, digest = split(repository)
    if tag or digest or not name:
        raise ImageNameError(f"IMAGE_REPOSITORY is {repository!r}", hint="give the name alone, and the tag as TAG")
    return repository


def check_pushable(repository: str) -> str:
    """Return ``repository``, or raise where its registry is this machine's name for images that never leave it."""
    if registry_of(repository) == "localhost":
        raise ImageNameError(
            f"{repository} is no place to push to",
            hint="set IMAGE_REPOSITORY to REGISTRY/NAME, e.g. ghcr.io/you/trainer",
        )
    return repository


def default_tag(base_mark: str = "", extras: Sequence[str] = ()) -> str:
    """``VERSION-gREVISION``, and what else tells this image from another of that revision.

    ``-dirty.HASH`` stands for changes that are not committed, ``-base.HASH`` (``base_mark``) for a base that is not
    the production one, ``-with.NAME`` for each of the ``extras``.
    """
    changes = uncommitted()
    parts = [
        f"{project_version()}-g{revision()[:12]}",
        f"dirty.{short_hash(changes)}" if changes else "",
        f"base.{base_mark}" if base_mark else "",
        *(f"with.{name}" for name in extras),
    ]
    return check_tag("-".join(part for part in parts if part))


def revision() -> str:
    """The checked-out commit."""
    return git("rev-parse", "HEAD").strip()


def source() -> str:
    """Where the sources come from: the address of git's `origin`, without credentials.

    Empty where there is none, and where it is a folder: that names nothing on another machine.
    """
    names = git("remote").split()
    address = git("remote", "get-url", "origin").strip() if "origin" in names else ""
    if not re.match(r"(https?|ssh|git)://|[^/]+@[^/]+:", address):
        return ""
    return re.sub(r"(?<=://)[^/@]*@", "", address)


def uncommitted() -> bytes:
    """Everything about :data:`IMAGE_INPUTS` that the checked-out commit does not hold; empty in a clean tree."""
    changes = os.fsencode(git("diff", "HEAD", "--binary", "--", *IMAGE_INPUTS))
    new = git("ls-files", "--others", "--exclude-standard", "-z", "--", *IMAGE_INPUTS)
    for name in sorted(filter(None, new.split("\0"))):
        changes += os.fsencode(name) + b"\0" + Path(REPO, name).read_bytes()
    return changes


def project_version() -> str:
    """The version in ``pyproject.toml``."""
    version: str = tomllib.loads(Path(REPO, "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def short_hash(content: bytes) -> str:
    """The first 8 hexadecimal digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:8]


def git(*arguments: str) -> str:
    """Output of a git command in this repository."""
    return command.run(["git", "-C", REPO, *arguments], hint="build from a git checkout, with git installed")
