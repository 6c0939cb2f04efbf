"""One run as the cluster sees it: its pods, what rank 0 says of it, how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rankzero import contract
from rankzero.cluster import workload
from rankzero.cluster.api import TIMEOUT, readable
from rankzero.cluster.workload import Workload

FORBIDDEN = {401, 403}
ENDED = {"Succeeded", "Failed"}
"""Phases of pods that hold nothing any more."""


@dataclass(frozen=True)
class PodView:
    """A pod of the run.

    ``gpus`` are those that it holds now. ``trouble`` is why it does not run, empty where nothing is known against it;
    ``created`` is seconds since the epoch by the API; ``restarts`` counts how often its containers were started again.
    ``claims`` are those whose volumes it mounts.
    ``rank0``: it is, or was, that of node rank 0, which serves the group's status page at ``status_port``.
    """

    name: str
    uid: str
    phase: str
    node: str
    gpus: int
    trouble: str
    created: float
    restarts: int
    rank0: bool
    status_port: int | None
    claims: tuple[str, ...]

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in ENDED


class Run:
    """Reads one release. All methods ask the API anew.

    They raise :class:`ClusterError` where it refuses, :class:`UnreachableError` where it does not answer.
    """

    def __init__(self, api: client.ApiClient, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        # The generated client types every field as optional, also those that the API always fills.
        self._core: Any = client.CoreV1Api(api)
        self._api = api

    def workload(self) -> Workload | None:
        """What owns the release's pods; None where it has none here."""
        return workload.find(self._api, self.namespace, self.name)

    def pods(self, gpu_resource: str = contract.GPU_RESOURCE) -> list[PodView]:
        """The run's pods by name."""
        selector = f"{contract.LABEL_NAME}={contract.APP_NAME},{contract.LABEL_INSTANCE}={self.name}"
        with readable(f"pods in {self.namespace}"):
            found = self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=TIMEOUT
            ).items
        return sorted((_view(pod, gpu_resource) for pod in found), key=lambda pod: pod.name)

    def delete_pod(self, name: str) -> None:
        """Ask for the deletion of a pod, as an eviction or a person would; one that has gone already is fine."""
        with readable(f"pod {self.namespace}/{name}"):
            try:
                self._core.delete_namespaced_pod(name, self.namespace, _request_timeout=TIMEOUT)
            except ApiException as error:
                if error.status != 404:
                    raise

    def status(self, pods: list[PodView] | None = None) -> dict[str, Any] | None:
        """The status page of node rank 0, one of ``pods``; None while it does not answer: it comes and goes."""
        living = (pod for pod in (self.pods() if pods is None else pods) if pod.rank0 and not pod.has_ended)
        rank0 = max(living, key=lambda pod: pod.created, default=None)
        if rank0 is None or rank0.status_port is None:
            return None
        with readable(f"pods/proxy of {self.namespace}/{rank0.name}"):
            try:
                answer = self._core.connect_get_namespaced_pod_proxy_with_path(
                    f"{rank0.name}:{rank0.status_port}",
                    self.namespace,
                    "status",
                    _preload_content=False,
                    _request_timeout=TIMEOUT,
                )
                return _document(answer.data)
            except ApiException as error:
                if error.status in FORBIDDEN:
                    raise
            except urllib3.exceptions.HTTPError as error:
                if not _is_read_timeout(error):  # the API takes the call and waits for the pod
                    raise
        return None

    def outcome(self, run_id: str, *, since: float = 0.0) -> dict[str, Any] | None:
        """How run ``run_id`` of this release ended, from its newest Event; None where there is none (they expire).

        Events from before ``since`` (seconds since the epoch by the API) are those of an earlier start of it.
        """
        for event in sorted(self._events(f"involvedObject.name={self.name}"), key=_seconds, reverse=True):
            outcome = _document((event.metadata.annotations or {}).get(contract.ANNOTATION_OUTCOME, ""))
            if outcome is not None and outcome.get("run_id") == run_id and _seconds(event) >= since:
                return outcome
        return None

    def refused_pods(self) -> str:
        """Why the API takes no more pods from what makes them; empty where it does, or nothing is known.

        A quota, an admission policy, a class or account that is not there: such pods never come to be, so that only an
        Event tells of them. One from before the last pod that was taken tells of what is over.
        """
        made = ("SuccessfulCreate", "FailedCreate")
        about_pods = [one for one in self._events(f"involvedObject.name={self.name}") if _reason(one).startswith(made)]
        return _newest_warning([max(about_pods, key=_last_seen)] if about_pods else [])

    def unmade_volume(self, claim: str) -> str:
        """Why a claim that waits for its volume has none; empty where nothing is known."""
        return _newest_warning(self._events(f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}"))

    def _events(self, about: str) -> list[Any]:
        with readable(f"events in {self.namespace}"):
            return list(
                self._core.list_namespaced_event(self.namespace, field_selector=about, _request_timeout=TIMEOUT).items
            )


def _seconds(found: Any) -> float:
    """When the API created an object, in seconds since the epoch."""
    return float(found.metadata.creation_timestamp.timestamp())


def _last_seen(event: Any) -> float:
    """When an Event was last repeated, in seconds since the epoch; series tell it apart."""
    repeated = (event.last_timestamp, event.series and event.series.last_observed_time)
    return max(_seconds(event), *(float(at.timestamp()) for at in repeated if at), 0.0)


def _reason(event: Any) -> str:
    return event.reason or ""


def _newest_warning(events: list[Any]) -> str:
    newest = max((one for one in events if one.type == "Warning"), key=_last_seen, default=None)
    return f"{newest.reason}: {newest.message}" if newest else ""


def _document(text: str | bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _is_read_timeout(error: urllib3.exceptions.HTTPError) -> bool:
    cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    return isinstance(cause, urllib3.exceptions.ReadTimeoutError)


def _view(pod: Any, gpu_resource: str) -> PodView:
    gpus = sum(int((c.resources.limits or {}).get(gpu_resource, 0)) for c in pod.spec.containers if c.resources)
    ports = (port for container in pod.spec.containers for port in container.ports or [])
    return PodView(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        node=pod.spec.node_name or "",
        gpus=0 if pod.status.phase in ENDED else gpus,
        trouble=_trouble(pod.status),
        created=_seconds(pod),
        restarts=sum(container.restart_count for container in pod.status.container_statuses or []),
        rank0=_is_rank0(pod.spec),
        status_port=next((int(port.container_port) for port in ports if port.name == contract.STATUS_PORT_NAME), None),
        claims=tuple(
            volume.persistent_volume_claim.claim_name
            for volume in pod.spec.volumes or []
            if volume.persistent_volume_claim
        ),
    )


def _is_rank0(spec: Any) -> bool:
    """Whether a pod has the host name that all of its group look for."""
    variables = [variable for container in spec.containers for variable in container.env or []]
    host = next((str(variable.value) for variable in variables if variable.name == contract.ENV_RANK0_HOST), "")
    return bool(spec.hostname) and spec.hostname == host.partition(".")[0]


def _trouble(status: Any) -> str:
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    for container in status.init_container_statuses or []:  # until they have ended the others wait for them
        if trouble := _trouble_of(container):
            return f"init container {container.name}: {trouble}"
    return next(filter(None, map(_trouble_of, status.container_statuses or [])), "")


def _trouble_of(container: Any) -> str:
    waiting = container.state.waiting
    if waiting and waiting.reason not in {"ContainerCreating", "PodInitializing"}:
        last = container.last_state.terminated
        # What the launcher left when it ended says more than the kubelet, which only says for how long it waits.
        said = _first((last.message if last else "") or "") or waiting.message or ""
        return f"{waiting.reason}: {said}".strip(": ")
    if (ended := container.state.terminated) and ended.exit_code:
        return f"{ended.reason or 'ended'} with status {ended.exit_code}: {_first(ended.message or '')}".strip(": ")
    return ""


def _first(message: str) -> str:
    """The sentence of a termination message and the fix below it, without the output of a worker that may follow."""
    lines = [line.strip() for line in message.splitlines()]
    return "; ".join(lines[: 2 if lines[1:] and lines[1].startswith("fix:") else 1])
