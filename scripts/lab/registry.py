"""The one way images reach the nodes: a registry in a container, pushed to from here and pulled from by the nodes."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

from rankzero.errors import RankzeroError
from scripts.cache import cache_dir
from scripts.lab import programs
from scripts.lab.podman import container_labels, containers, podman, remove_containers, succeeds
from scripts.lab.settings import (
    LABEL_SPEC,
    NAME,
    REGISTRY,
    REGISTRY_ADDRESS,
    REGISTRY_NODE_PORT,
    registry_host,
    registry_port,
)

CONFIG = Path(__file__).parent / "registry.yaml"
STORAGE = "/var/lib/registry"
MANIFEST_TYPES = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
READY_WITHIN = 30.0
ANSWER_WITHIN = 10.0
"""Seconds, both."""


def storage_dir() -> Path:
    """The registry's images on this machine's disk."""
    return cache_dir("lab", "registry")


def ensure_registry(image: str) -> None:
    """Have the registry running, from ``image`` (any with a root file system: the program is static and mounted).

    Raises :class:`RankzeroError` when its port is taken by another program.
    """
    program = programs.program("registry", "registry")
    spec = f"{program.parent.name} {registry_port()} {image}"
    present = containers().get(REGISTRY)
    held = present["Labels"][LABEL_SPEC].split()[1] if present and present["State"] == "running" else ""
    if held != str(registry_port()):
        _refuse_busy_port(registry_port())
    if present and present["Labels"][LABEL_SPEC] != spec:
        remove_containers(REGISTRY)
        present = None
    if not present:
        podman(
            *("run", "--detach", "--name", REGISTRY, *container_labels(spec)),
            *("--network", NAME, "--ip", REGISTRY_ADDRESS),
            *("--publish", f"127.0.0.1:{registry_port()}:{REGISTRY_NODE_PORT}"),
            *("--volume", f"{program}:/usr/local/bin/registry:ro", "--volume", f"{CONFIG}:/etc/registry.yaml:ro"),
            *("--volume", f"{storage_dir()}:{STORAGE}"),
            *(image, "/usr/local/bin/registry", "serve", "/etc/registry.yaml"),
        )
    elif present["State"] != "running":
        podman("start", REGISTRY)
    _wait_until_ready()


def has_image(reference: str) -> bool:
    """Whether the registry holds ``localhost:PORT/NAME:TAG``."""
    name, _, tag = reference.removeprefix(f"{registry_host()}/").rpartition(":")
    return _status(f"/v2/{name}/manifests/{tag}", accept=MANIFEST_TYPES) == 200


def push(image: str, reference: str = "") -> str:
    """Push a local podman image and return its reference for pods.

    Without ``reference`` the image keeps its own path: ``localhost/x:1`` becomes ``localhost:5001/x:1``. Layers
    that the registry has are not sent again. zstd: on two cores gzip takes minutes for the trainer image.
    """
    if not succeeds("image", "exists", image):
        raise RankzeroError(
            f"podman has no image {image}", hint="build it first (make build-image), or see `podman images`"
        )
    reference = reference or f"{registry_host()}/{image.partition('/')[2] or image}"
    podman(
        *("push", "--tls-verify=false", "--format", "oci", "--compression-format", "zstd"),
        *(image, f"docker://{reference}"),
        log="registry-push.log",
    )
    return reference


def catalog() -> list[str]:
    """All ``NAME:TAG`` that the registry holds."""
    names = _get("/v2/_catalog?n=1000")["repositories"]
    return sorted(f"{name}:{tag}" for name in names for tag in _get(f"/v2/{name}/tags/list")["tags"] or [])


def _get(path: str) -> dict[str, Any]:
    with urllib.request.urlopen(_request(path, "GET"), timeout=ANSWER_WITHIN) as answer:  # noqa: S310 (always http)
        return cast("dict[str, Any]", json.load(answer))


def _request(path: str, method: str, accept: str = "*/*") -> urllib.request.Request:
    url = f"http://127.0.0.1:{registry_port()}{path}"
    return urllib.request.Request(url, method=method, headers={"Accept": accept})


def _status(path: str, accept: str = "*/*") -> int:
    """HTTP status of a HEAD request; 0 when nothing answers."""
    try:
        with urllib.request.urlopen(_request(path, "HEAD", accept), timeout=ANSWER_WITHIN) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0


def _refuse_busy_port(port: int) -> None:
    with socket.socket() as probe:
        # As the registry itself will: connections of a stopped registry in TIME_WAIT do not count as busy.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise RankzeroError(
                f"port {port} of 127.0.0.1, where the lab's image registry listens, is taken by another program",
                hint="stop that program (`ss -ltnp` names it), or set RANKZERO_REGISTRY_PORT to a free port",
            ) from error


def _wait_until_ready() -> None:
    deadline = time.monotonic() + READY_WITHIN
    while _status("/v2/") != 200:
        if time.monotonic() > deadline:
            raise RankzeroError(
                f"the image registry did not answer on port {registry_port()} within {READY_WITHIN:g} s",
                hint=f"read `podman logs {REGISTRY}`",
            )
        time.sleep(0.1)
