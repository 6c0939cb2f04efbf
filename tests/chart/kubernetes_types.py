"""Compares an object with the Kubernetes API's own types, as the official client was generated from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes import client

from tests.chart import custom_resources

MODELS = {
    "ConfigMap": "V1ConfigMap",
    "Job": "V1Job",
    "NetworkPolicy": "V1NetworkPolicy",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "Pod": "V1Pod",
    "PodDisruptionBudget": "V1PodDisruptionBudget",
    "PodGroup": "V1beta1PodGroup",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
    "Service": "V1Service",
    "ServiceAccount": "V1ServiceAccount",
    "StatefulSet": "V1StatefulSet",
}
PLAIN = {"str": str, "int": int, "bool": bool, "float": float, "object": object}
QUANTITIES = ("limits", "requests")


def problems(manifest: dict[str, Any]) -> list[str]:
    """Keys that the API does not know and values of another type, each with its path.

    Of kinds that are not Kubernetes' own only the parts that are.
    """
    if custom_resources.known(manifest):
        return custom_resources.problems(manifest)
    match manifest["kind"]:
        case "PyTorchJob":
            roles = manifest["spec"]["pytorchReplicaSpecs"].items()
            parts = [(spec["template"], "V1PodTemplateSpec", role) for role, spec in roles]
        case "TrainingRuntime":
            jobs = manifest["spec"]["template"]["spec"]["replicatedJobs"]
            parts = [(job["template"], "V1JobTemplateSpec", job["name"]) for job in jobs]
        case "TrainJob":
            parts = []
        case kind:
            parts = [(manifest, MODELS[kind], kind)]
    return [problem for part in parts for problem in _check(*part)]


def _check(value: Any, kind: str, path: str) -> Iterator[str]:
    container = re.fullmatch(r"(List\[|Dict\[str, )(.+)\]", kind)
    if container:
        wanted = list if container[1] == "List[" else dict
        if not isinstance(value, wanted):
            yield f"{path} is {value!r}, not a {wanted.__name__}"
            return
        pairs = enumerate(value) if isinstance(value, list) else value.items()
        for key, item in pairs:
            yield from _check(item, container[2], f"{path}[{key}]")
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) and not (_is_quantity(path) and isinstance(value, int)):
            yield f"{path} is {value!r}, not {kind}"
    else:
        yield from _check_model(value, getattr(client, kind), path)


def _check_model(value: Any, model: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is {value!r}, not a mapping"
        return
    kinds = {key: model.openapi_types[name] for name, key in model.attribute_map.items()}
    for key, item in value.items():
        if key in kinds:
            yield from _check(item, kinds[key], f"{path}.{key}")
        else:
            yield f"{path}.{key} is unknown"


def _is_quantity(path: str) -> bool:
    return path.rpartition("[")[0].rpartition(".")[2] in QUANTITIES
