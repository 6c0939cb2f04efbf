"""One run as the cluster sees it: its pods, what rank 0 says of it, how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rankzero import contract
from rankzero.cluster.api import TIMEOUT, readable


@dataclass(frozen=True)
class PodView:
    """A pod of the run. ``trouble`` is why it does not run yet, empty where nothing is known against it."""

    name: str
    uid: str
    phase: str
    node: str
    gpus: int
    trouble: str


class Run:
    """Reads one release. All methods ask the API anew and raise ClusterError where it does not answer."""

    def __init__(self, api: client.ApiClient, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        # The generated client types every field as optional, also those that the API always fills.
        self._core: Any = client.CoreV1Api(api)
        self._apps: Any = client.AppsV1Api(api)

    def replicas(self) -> int | None:
        """Pods that are wanted; None where the release has no workload here."""
        with readable(f"StatefulSet {self.namespace}/{self.name}"):
            try:
                found = self._apps.read_namespaced_stateful_set(self.name, self.namespace, _request_timeout=TIMEOUT)
            except ApiException as error:
                if error.status == 404:
                    return None
                raise
        return int(found.spec.replicas)

    def pods(self, gpu_resource: str = contract.GPU_RESOURCE) -> list[PodView]:
        """The run's pods by name."""
        selector = f"{contract.LABEL_NAME}={contract.APP_NAME},{contract.LABEL_INSTANCE}={self.name}"
        with readable(f"pods in {self.namespace}"):
            found = self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=TIMEOUT
            ).items
        return sorted((_view(pod, gpu_resource) for pod in found), key=lambda pod: pod.name)

    def delete_pod(self, name: str) -> None:
        """Ask for the deletion of a pod, as an eviction or a person would."""
        with readable(f"pod {self.namespace}/{name}"):
            self._core.delete_namespaced_pod(name, self.namespace, _request_timeout=TIMEOUT)

    def status(self) -> dict[str, Any] | None:
        """The status page of node rank 0; None while it does not answer."""
        try:
            answer = self._core.connect_get_namespaced_pod_proxy_with_path(
                f"{self.name}-0:{contract.STATUS_PORT}",
                self.namespace,
                "status",
                _preload_content=False,
                _request_timeout=TIMEOUT,
            )
            document: dict[str, Any] = json.loads(answer.data)
        except (ApiException, ValueError, OSError):  # the pod comes and goes; the caller asks again
            return None
        return document

    def outcome(self) -> dict[str, Any] | None:
        """How the newest run of this release ended, from its Event; None where there is none (they expire)."""
        with readable(f"events in {self.namespace}"):
            events = self._core.list_namespaced_event(
                self.namespace, field_selector=f"involvedObject.name={self.name}", _request_timeout=TIMEOUT
            ).items
        outcomes = [
            event.metadata.annotations[contract.ANNOTATION_OUTCOME]
            for event in sorted(events, key=lambda event: event.metadata.creation_timestamp)
            if contract.ANNOTATION_OUTCOME in (event.metadata.annotations or {})
        ]
        newest: dict[str, Any] | None = json.loads(outcomes[-1]) if outcomes else None
        return newest


def _view(pod: Any, gpu_resource: str) -> PodView:
    gpus = sum(int((c.resources.limits or {}).get(gpu_resource, 0)) for c in pod.spec.containers if c.resources)
    return PodView(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        node=pod.spec.node_name or "",
        gpus=gpus,
        trouble=_trouble(pod.status),
    )


def _trouble(status: Any) -> str:
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    for container in status.container_statuses or []:
        waiting = container.state.waiting
        if waiting and waiting.reason not in {"ContainerCreating", "PodInitializing"}:
            last = container.last_state.terminated
            said = waiting.message or (last.message if last else "") or ""
            return f"{waiting.reason}: {said}".strip(": ")
    return ""
