"""Renders the chart with real Helm and hands back what a test asks about."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankzero import config
from scripts.command import CommandError
from scripts.generate import files, helm

Values = dict[str, Any]
Manifest = dict[str, Any]

MINIMAL: Values = yaml.safe_load((files.SCENARIOS / "minimal-values.yaml").read_text(encoding="utf-8"))


def minimal(changes: Mapping[str, Any]) -> Values:
    """The least values that render, with ``changes`` by key path: ``{"image.tag": "latest"}``."""
    values = copy.deepcopy(MINIMAL)
    for path, value in changes.items():
        *sections, key = path.split(".")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
        target[key] = value
    return values


def render(
    values: Values,
    *,
    release: str = "mnist",
    extra: Sequence[str] = (),
    optional_apis: Sequence[str] = helm.OPTIONAL_APIS,
) -> list[Manifest]:
    """All objects of a release."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        return documents(helm.template(release, Path(file.name), extra, optional_apis=optional_apis))


def documents(text: str) -> list[Manifest]:
    """The objects in a rendering."""
    return [document for document in yaml.safe_load_all(text) if document]


def refusals(values: Values, *, release: str = "mnist", optional_apis: Sequence[str] = helm.OPTIONAL_APIS) -> list[str]:
    """The sentences with which Helm refuses the values; fails the test when it accepts them."""
    with pytest.raises(CommandError) as caught:
        render(values, release=release, optional_apis=optional_apis)
    return re.findall(r"^\s+- (.+)$", caught.value.message, re.MULTILINE)


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one object of this kind."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def pod_spec(manifests: list[Manifest]) -> Manifest:
    """The pods' spec."""
    spec: Manifest = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def trainer(manifests: list[Manifest]) -> Manifest:
    """The one container."""
    (container,) = pod_spec(manifests)["containers"]
    found: Manifest = container
    return found


def environment(manifests: list[Manifest]) -> dict[str, str]:
    """The container's variables; one from the downward API appears as its field path, one from a Secret as NAME/KEY."""
    pairs = [(entry["name"], entry) for entry in trainer(manifests)["env"]]
    assert len(dict(pairs)) == len(pairs), "a variable is set twice"
    return {name: entry["value"] if "value" in entry else _source(entry["valueFrom"]) for name, entry in pairs}


def _source(value_from: Manifest) -> str:
    if "secretKeyRef" in value_from:
        return "{name}/{key}".format(**value_from["secretKeyRef"])
    path: str = value_from["fieldRef"]["fieldPath"]
    return path


def run_config(manifests: list[Manifest], folder: Path) -> config.RunConfig:
    """``train.yaml`` as the launcher loads it."""
    path = folder / "train.yaml"
    path.write_text(only(manifests, "ConfigMap")["data"]["train.yaml"], encoding="utf-8")
    return config.load(path)
