"""Releases of the chart in a test's namespace."""

from __future__ import annotations

import json
from typing import Any

import yaml

from scripts import command
from scripts.cache import REPO
from scripts.image.reference import as_values
from scripts.lab import kube, programs
from tests.lab.conftest import Namespace

CHART = REPO / "charts/rankzero"


def install(namespace: Namespace, name: str, image: str, *files: str, **values: Any) -> None:
    """``helm install`` with this image, values files of the repository and values on top. Raises CommandError."""
    _helm(namespace, "install", name, image, files, values)


def upgrade(namespace: Namespace, name: str, image: str, *files: str, **values: Any) -> None:
    """``helm upgrade`` in the same way."""
    _helm(namespace, "upgrade", name, image, files, values)


def uninstall(namespace: Namespace, name: str) -> None:
    """``helm uninstall``, until its objects are gone."""
    _run("uninstall", name, "--namespace", namespace.name, "--wait", "--timeout", "200s")


def pods(namespace: Namespace, release: str) -> dict[str, dict[str, Any]]:
    """The release's pods by name, of whichever kind it is."""
    found = namespace.kubectl("get", "pods", "--selector", f"app.kubernetes.io/instance={release}", "--output", "json")
    return {pod["metadata"]["name"]: pod for pod in json.loads(found)["items"]}


def _helm(
    namespace: Namespace, verb: str, name: str, image: str, files: tuple[str, ...], values: dict[str, Any]
) -> None:
    _run(
        *(verb, name, str(CHART), "--namespace", namespace.name),
        *(word for file in (*(str(REPO / file) for file in files), "-") for word in ("--values", file)),
        stdin=yaml.safe_dump({"image": as_values(image), **values}),
    )


def _run(*words: str, stdin: str | None = None) -> None:
    helm = programs.program("helm", "helm")
    command.run([helm, *words, "--kubeconfig", kube.kubeconfig_path()], stdin=stdin, timeout=300)
