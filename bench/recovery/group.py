"""Two pods in a namespace of their own: what disturbs them, and when they made a step again."""

from __future__ import annotations

import math
import time
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from bench.recovery.forms import NAME, PODS, Form
from bench.recovery.install import install
from bench.recovery.logs import first_step, last_step
from rankzero.cluster.api import TIMEOUT, readable
from rankzero.errors import ClusterError, UnreachableError
from scripts.drill.release import PROGRAM
from scripts.lab import kube

NAMESPACE = "rankzero-recovery"
POLL = 0.25
GONE_WITHIN = 180.0
NOT_YET = {400, 404}
"""What the API answers to the question for a log: the container has not started; there is no such pod now."""


class Group:
    """Installs a form, disturbs it, watches its logs. Times are seconds since the epoch by this machine's clock."""

    def __init__(self, api: client.ApiClient) -> None:
        self._core: Any = client.CoreV1Api(api)

    def install(self, form: Form, image: str) -> float:
        """Install ``form`` in a fresh namespace; returns when the command was given."""
        self.remove()
        kube.kubectl("create", "namespace", NAMESPACE)
        # What the cluster puts into it a moment later; pods that come before it are tried again after a pause.
        present = ("serviceaccount/default", "configmap/kube-root-ca.crt")
        kube.kubectl("--namespace", NAMESPACE, "wait", "--for=create", "--timeout=30s", *present)
        began = time.time()
        install(form, NAMESPACE, image)
        return began

    def remove(self) -> None:
        """Remove whatever was installed; returns when pods and volumes are gone."""
        kube.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
        # Two rendezvous that wait for each other ignore SIGTERM: their grace need not be waited for.
        kube.kubectl("--namespace", NAMESPACE, "delete", "pods", "--all", "--grace-period=1", "--wait=false")
        deadline = time.monotonic() + GONE_WITHIN
        while left := self._left():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{left} is still there {GONE_WITHIN:.0f} s after its removal",
                    hint=f"see `kubectl get all --namespace {NAMESPACE}`; is a node gone?",
                )
            time.sleep(POLL)

    def kill_worker(self) -> float:
        """SIGKILL the training process of pod 1 from within the pod; returns when."""
        pod = f"{NAME}-1"
        words = ("--namespace", NAMESPACE, "exec", "--stdin", pod, "--", "python", "-", "signal", "worker", "SIGKILL")
        return float(kube.kubectl(*words, stdin=PROGRAM.read_text(encoding="utf-8")))

    def delete_pod(self, index: int) -> float:
        """Ask for the deletion of a pod, as `kubectl delete pod` does; returns when."""
        name = f"{NAME}-{index}"
        began = time.time()
        with readable(f"pod {NAMESPACE}/{name}"):
            self._core.delete_namespaced_pod(name, NAMESPACE, _request_timeout=TIMEOUT)
        return began

    def next_step(self, since: float, *, within: float, resumed: bool = False) -> float | None:
        """Seconds from ``since`` to the next step that any pod's log shows; None where it took over ``within``.

        ``resumed``: see :func:`bench.recovery.logs.first_step`.
        """
        while time.time() - since < within + POLL:
            steps = [first_step(log, since=since, resumed=resumed) for log in self._logs(since)]
            if found := [step for step in steps if step is not None]:
                seconds = min(found) - since
                return seconds if seconds <= within else None
            time.sleep(POLL)
        return None

    def reaches(self, step: int, *, within: float) -> bool:
        """Wait until ``step`` is printed; False where that takes over ``within`` seconds."""
        began = time.time()
        while time.time() - began < within:
            if max(last_step(log) for log in self._logs(time.time())) >= step:
                return True
            time.sleep(POLL)
        return False

    def facts(self) -> dict[str, str]:
        """Versions as pod 0 and the API have them."""
        program = "import importlib.metadata as m, platform; print(m.version('torch'), platform.python_version())"
        words = ("--namespace", NAMESPACE, "exec", f"{NAME}-0", "--", "python", "-c", program)
        torch, python = kube.kubectl(*words).split()
        with readable("the list of nodes"):
            node = self._core.list_node(_request_timeout=TIMEOUT).items[0]
        return {"kubernetes": node.status.node_info.kubelet_version, "torch": torch, "python": python}

    def _logs(self, since: float) -> list[str]:
        """What the pods have printed since, and a little of what was before: rank 0 may be on either."""
        return [self._log(f"{NAME}-{index}", since) for index in range(PODS)]

    def _log(self, name: str, since: float) -> str:
        seconds = math.ceil(time.time() - since) + 1
        try:
            with readable(f"the log of {NAMESPACE}/{name}"):
                try:
                    answer = self._core.read_namespaced_pod_log(
                        name,
                        NAMESPACE,
                        timestamps=True,
                        since_seconds=seconds,
                        _preload_content=False,
                        _request_timeout=TIMEOUT,
                    )
                except ApiException as error:
                    if error.status in NOT_YET:
                        return ""
                    raise
        except UnreachableError:  # the times are those of the log, so the next answer is as good
            return ""
        return str(answer.data.decode(errors="replace"))

    def _left(self) -> str:
        """What is still there; empty when nothing is."""
        with readable(f"namespace {NAMESPACE}"):
            if any(found.metadata.name == NAMESPACE for found in self._core.list_namespace().items):
                return f"namespace {NAMESPACE}"
            for volume in self._core.list_persistent_volume().items:
                if volume.spec.claim_ref and volume.spec.claim_ref.namespace == NAMESPACE:
                    return f"volume {volume.metadata.name}"
        return ""
