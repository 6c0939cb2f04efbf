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

from rankzero import config, contract
from scripts.command import CommandError
from scripts.generate import files, helm

Values = dict[str, Any]
Manifest = dict[str, Any]

WORKLOADS = ("StatefulSet", "Job", "Pod", "PyTorchJob", "TrainingRuntime")
"""Kinds with the pods' template; that of a TrainJob is in its runtime."""

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
    """The objects in a rendering, those in a List as the others."""
    loaded = [document for document in yaml.safe_load_all(text) if document]
    return [one for document in loaded for one in (document["items"] if document["kind"] == "List" else [document])]


def refusals(
    values: Values,
    *,
    release: str = "mnist",
    extra: Sequence[str] = (),
    optional_apis: Sequence[str] = helm.OPTIONAL_APIS,
) -> list[str]:
    """The sentences with which Helm refuses the values; fails the test when it accepts them."""
    with pytest.raises(CommandError) as caught:
        render(values, release=release, extra=extra, optional_apis=optional_apis)
    return re.findall(r"^\s+- (.+)$", caught.value.message, re.MULTILINE)


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one object of this kind."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def pod_templates(manifests: list[Manifest]) -> list[Manifest]:
    """The templates of the pods, whatever they belong to; that of node rank 0 comes first."""
    (workload,) = (manifest for manifest in manifests if manifest["kind"] in WORKLOADS)
    spec = workload["spec"]
    match workload["kind"]:
        case "Pod":
            return [workload]
        case "PyTorchJob":
            return [spec["pytorchReplicaSpecs"][role]["template"] for role in sorted(spec["pytorchReplicaSpecs"])]
        case "TrainingRuntime":
            return [job["template"]["spec"]["template"] for job in spec["template"]["spec"]["replicatedJobs"]]
    return [spec["template"]]


def pod_spec(manifests: list[Manifest]) -> Manifest:
    """The spec of node rank 0's pod."""
    spec: Manifest = pod_templates(manifests)[0]["spec"]
    return spec


def trainer(manifests: list[Manifest]) -> Manifest:
    """The one container of node rank 0's pod."""
    return container_of(pod_templates(manifests)[0])


def container_of(template: Manifest) -> Manifest:
    """The one container of a pod."""
    (container,) = template["spec"]["containers"]
    found: Manifest = container
    return found


def environment(manifests: list[Manifest]) -> dict[str, str]:
    """The variables of node rank 0's container; one from the downward API appears as its field path."""
    return variables(trainer(manifests))


def variables(container: Manifest) -> dict[str, str]:
    """A container's variables; one from the downward API appears as its field path, one from a Secret as NAME/KEY."""
    pairs = [(entry["name"], entry) for entry in container["env"]]
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
    (text,) = (text for one in manifests if (text := one.get("data", {}).get(contract.CONFIG_FILE)))
    path.write_text(text, encoding="utf-8")
    return config.load(path)
