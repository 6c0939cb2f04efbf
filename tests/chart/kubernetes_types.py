"""Compares an object with the types of the Kubernetes API, in each version that kubernetes-validate knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import jsonschema
from referencing import Registry, Resource

from tests.chart import custom_resources

SCHEMAS = resources.files("kubernetes_validate") / "kubernetes-json-schema"
OLDEST, NEWEST = 28, 37
"""Minor versions of Kubernetes 1: the least in Chart.yaml, and the lab's."""


class Part(NamedTuple):
    """An object that is Kubernetes' own, or what in another is."""

    name: str
    group: str
    version: str
    kind: str
    value: Any


def problems(manifest: dict[str, Any], minor: int = NEWEST) -> list[str]:
    """Keys that this version of the API does not know and values that it refuses, each with its path.

    Of kinds that are not Kubernetes' own the parts that are, beside what their CRD says.
    """
    found = custom_resources.problems(manifest) if custom_resources.known(manifest) else []
    return found + [problem for part in _parts(manifest) for problem in _problems(part, minor)]


def _problems(part: Part, minor: int) -> Iterator[str]:
    definitions = _definitions(minor)
    name = f"io.k8s.api.{part.group}.{part.version}.{part.kind}"
    if name not in definitions.contents["$defs"]:
        yield f"{part.name} is unknown in {part.version} of {part.group}"
        return
    for error in _validator(minor, name).iter_errors(part.value):
        yield f"{'.'.join(map(str, (part.name, *error.absolute_path)))}: {error.message}"


def _parts(manifest: dict[str, Any]) -> Iterator[Part]:
    match manifest["kind"]:
        case "PyTorchJob":
            for role, spec in manifest["spec"]["pytorchReplicaSpecs"].items():
                yield Part(role, "core", "v1", "PodTemplateSpec", spec["template"])
        case "TrainingRuntime":
            for job in manifest["spec"]["template"]["spec"]["replicatedJobs"]:
                yield Part(job["name"], "batch", "v1", "JobTemplateSpec", job["template"])
        case kind if not custom_resources.known(manifest):
            group, _, version = manifest["apiVersion"].rpartition("/")
            yield Part(kind, group.partition(".")[0] or "core", version, kind, manifest)


@cache
def _validator(minor: int, name: str) -> jsonschema.Draft202012Validator:
    definitions = _definitions(minor)
    reference = {"$ref": f"{definitions.id()}#/$defs/{name}"}
    return jsonschema.Draft202012Validator(reference, registry=definitions @ Registry())


@cache
def _definitions(minor: int) -> Resource[Any]:
    text = (SCHEMAS / f"v1.{minor}.0-local-strict" / "_definitions.json").read_text(encoding="utf-8")
    return Resource.from_contents(json.loads(text))
