#!/usr/bin/python
"""Ansible module of the role drain: evicts pods, all or none as far as budgets decide it, and sees them gone.

Not kubernetes.core.k8s_drain, which gives up at the first pod that a budget holds back, when others have been evicted
already, takes a DaemonSet's pod with an emptyDir for one that has to go, and succeeds when pods stay beyond its time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError
except ImportError:
    HAS_KUBERNETES = False
else:
    HAS_KUBERNETES = True

DOCUMENTATION = r"""
module: drain_evict
short_description: Evict pods and wait until they are gone
description:
  - Asks the API server about each pod first (a dry run), until it would allow every eviction; then evicts them and
    waits until they are gone. Runs on the controller.
options:
  kubeconfig:
    description: Path of the kubeconfig.
    type: path
    required: true
  pods:
    description: The pods, each with C(namespace), C(name), C(uid) and C(experiment), empty where it is of none.
    type: list
    elements: dict
    required: true
  timeout:
    description: Seconds for all evictions to be allowed; the same again for the pods to be gone, beside O(grace).
    type: int
    required: true
  grace:
    description: Longest termination grace period of the pods in seconds.
    type: int
    required: true
  training_wait:
    description: Seconds that pods with an C(experiment) have to end by themselves before anything is evicted.
    type: int
    default: 0
"""

RETURN = r"""
evicted:
  description: The pods that were told to end.
  returned: always
  type: list
findings:
  description: For each pod that is still there, why; empty after success.
  returned: always
  type: list
"""

POLL = 2.0
"""Seconds between two questions to the API server."""
ENDED = ("Succeeded", "Failed")
GONE, CONFLICT, TOO_MANY, SERVER_ERROR = 404, 409, 429, 500
"""Answers of the API server. Of the last kind and above: it may know better in a moment."""


class Evictions:
    """The evictions of pods, over the API."""

    def __init__(self, api: Any, pods: Iterable[Mapping[str, str]]) -> None:
        self._api = api
        self._waiting = {f"{pod['namespace']}/{pod['name']}": pod for pod in pods}
        self._refused: dict[str, str] = {}
        self.evicted: dict[str, Mapping[str, str]] = {}

    def training_is_over(self) -> bool:
        """Strike off the pods of experiments that have ended; whether none is left."""
        for name, pod in list(self._waiting.items()):
            if pod["experiment"] and not self._runs(pod):
                del self._waiting[name]
        return not any(pod["experiment"] for pod in self._waiting.values())

    def would_all_be_allowed(self) -> bool:
        """Ask, and change nothing."""
        self._refused = {name: why for name, pod in self._waiting.items() if (why := self._evict(pod, dry_run=True))}
        return not self._refused

    def are_over(self) -> bool:
        """Evict what is allowed by now; whether no pod is left."""
        self._refused = {}
        for name, pod in list(self._waiting.items()):
            if why := self._evict(pod):
                self._refused[name] = why
            else:
                self.evicted[name] = self._waiting.pop(name)
        return not self._waiting and not any(map(self._is_there, self.evicted.values()))

    def findings(self, grace: int) -> list[dict[str, str]]:
        """What keeps the pods that are still there."""
        held = [
            {
                "severity": "error",
                "what": f"{name} cannot be evicted: {why}",
                "fix": "Let its budget allow a disruption, for example by more replicas, or raise drain_timeout.",
            }
            for name, why in self._refused.items()
        ]
        return held + [
            {
                "severity": "error",
                "what": f"{name} was evicted and is still there after its grace period of at most {grace} s.",
                "fix": "See what keeps it: a finalizer, or a container that its runtime cannot end.",
            }
            for name, pod in self.evicted.items()
            if self._is_there(pod)
        ]

    def _evict(self, pod: Mapping[str, str], dry_run: bool = False) -> str:
        """Why the API server refuses, or nothing."""
        place = {"name": pod["name"], "namespace": pod["namespace"]}
        options: dict[str, Any] = {"preconditions": {"uid": pod["uid"]}}
        if dry_run:
            options["dryRun"] = ["All"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": place, "deleteOptions": options}
        try:
            self._api.create_namespaced_pod_eviction(**place, body=body)
        except client.ApiException as error:
            if error.status in (GONE, CONFLICT):  # another pod has taken its name
                return ""
            if error.status == TOO_MANY or error.status >= SERVER_ERROR:
                return reason(error.body or "{}")
            raise
        return ""

    def _is_there(self, pod: Mapping[str, str]) -> bool:
        return self._read(pod) is not None

    def _runs(self, pod: Mapping[str, str]) -> bool:
        found = self._read(pod)
        return found is not None and (found is pod or found.status.phase not in ENDED)

    def _read(self, pod: Mapping[str, str]) -> Any:
        """The pod as the API server has it, ``pod`` itself where that fails to tell, None where it is gone."""
        try:
            found = self._api.read_namespaced_pod(pod["name"], pod["namespace"])
        except client.ApiException as error:
            if error.status == GONE:
                return None
            if error.status >= SERVER_ERROR:
                return pod
            raise
        return found if found.metadata.uid == pod["uid"] else None


def reason(body: str | bytes) -> str:
    """The API server's own words, with the name of the budget, from its answer to an eviction."""
    try:
        status = json.loads(body)
    except ValueError:
        return str(body)
    causes = [cause["message"] for cause in (status.get("details") or {}).get("causes") or [] if "message" in cause]
    return " ".join([status.get("message", ""), *causes]).strip() or "no reason given"


def holds_within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Ask for the ``condition`` until it holds, for so long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def run(params: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for training, ask about all evictions, evict."""
    timeout, grace = params["timeout"], params["grace"]
    connection = config.new_client_from_config(params["kubeconfig"])  # type: ignore[no-untyped-call]
    evictions = Evictions(client.CoreV1Api(connection), params["pods"])
    holds_within(params["training_wait"], evictions.training_is_over)
    done = holds_within(timeout, evictions.would_all_be_allowed) and holds_within(timeout + grace, evictions.are_over)
    return {
        "changed": bool(evictions.evicted),
        "evicted": sorted(evictions.evicted),
        "findings": [] if done else evictions.findings(grace),
    }


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "kubeconfig": {"type": "path", "required": True},
            "pods": {"type": "list", "elements": "dict", "required": True},
            "timeout": {"type": "int", "required": True},
            "grace": {"type": "int", "required": True},
            "training_wait": {"type": "int", "default": 0},
        },
    )
    if not HAS_KUBERNETES:
        module.fail_json(msg=missing_required_lib("kubernetes"))
    try:
        module.exit_json(**run(module.params))
    except (client.ApiException, HTTPError) as error:
        module.fail_json(msg=f"The cluster's API did not do what was asked: {error}")


if __name__ == "__main__":
    main()
