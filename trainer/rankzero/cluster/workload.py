"""The object that owns the pods of a release, of whichever kind, and what it says of the run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rankzero import contract
from rankzero.cluster.api import TIMEOUT, readable

Document = dict[str, Any]

NOT_FOUND, FORBIDDEN = 404, 403
RUNTIME = "TrainingRuntime"
"""Holds the pods' template of a TrainJob."""
API_VERSIONS = {**contract.WORKLOAD_APIS, RUNTIME: contract.WORKLOAD_APIS["TrainJob"]}
OPERATORS = {"PyTorchJob", "TrainJob"}
"""Kinds that few clusters serve: who may not read them is told that there is none."""
ENDS = {"Complete": "succeeded", "Succeeded": "succeeded", "Failed": "failed"}
"""What conditions of Jobs and of the operators' objects, and phases of Pods, say of the run."""


@dataclass(frozen=True)
class Workload:
    """What was asked for. ``run_id`` is the run of the release, ``created`` seconds since the epoch by the API.

    ``replicas`` is how many pods there should be now. ``ended`` is `succeeded` or `failed` where the object itself says
    so, else empty, and ``why`` what it says.
    """

    kind: str
    replicas: int
    run_id: str
    created: float
    ended: str = ""
    why: str = ""


def find(api: client.ApiClient, namespace: str, name: str) -> Workload | None:
    """The workload of a release; None where there is none here."""
    for kind in contract.WORKLOAD_KINDS:
        if (found := _read(api, kind, namespace, name)) is not None:
            template = found
            if kind == "TrainJob":
                template = _read(api, RUNTIME, namespace, name) or {}
            return _workload(kind, found, template)
    return None


def _read(api: client.ApiClient, kind: str, namespace: str, name: str) -> Document | None:
    # The generated client types neither of these.
    core: Any = client.CoreV1Api(api)
    custom: Any = client.CustomObjectsApi(api)
    with readable(f"{kind} {namespace}/{name}"):
        try:
            if kind == "Pod":
                pod = core.read_namespaced_pod(name, namespace, _preload_content=False, _request_timeout=TIMEOUT)
                found: Document = json.loads(pod.data)
                return found
            group, version = API_VERSIONS[kind].split("/")
            found = custom.get_namespaced_custom_object(
                group, version, namespace, f"{kind.lower()}s", name, _request_timeout=TIMEOUT
            )
        except ApiException as error:
            if error.status == NOT_FOUND or (error.status == FORBIDDEN and kind in OPERATORS):
                return None
            raise
    return found


def _workload(kind: str, found: Document, template: Document) -> Workload:
    status = found.get("status") or {}
    said = {item["type"]: item for item in status.get("conditions") or [] if item["status"] == "True"}
    if kind == "Pod":
        said = {status.get("phase", ""): status}
    ended, why = next(((ENDS[key], item.get("message") or "") for key, item in said.items() if key in ENDS), ("", ""))
    created = datetime.fromisoformat(found["metadata"]["creationTimestamp"]).timestamp()
    return Workload(kind, 0 if ended else _pods(kind, found["spec"]), _run_id(template), created, ended, why)


def _pods(kind: str, spec: Document) -> int:
    """How many pods a spec asks for."""
    match kind:
        case "StatefulSet":
            return int(spec["replicas"])
        case "Job":
            return int(spec["parallelism"])
        case "PyTorchJob":
            return sum(int(part["replicas"]) for part in spec["pytorchReplicaSpecs"].values())
        case "TrainJob":
            return int(spec["trainer"]["numNodes"])
    return 1


def _run_id(template: Any) -> str:
    """The run that the pods belong to: a variable of their container, however deep their template lies."""
    if isinstance(template, dict):
        if template.get("name") == contract.ENV_RUN_ID:
            return str(template.get("value", ""))
        template = list(template.values())
    if isinstance(template, list):
        return next(filter(None, map(_run_id, template)), "")
    return ""
