"""Runs as a Job and as a Pod on the real cluster: they end by themselves, and Kubernetes says how.

A StatefulSet is what the demo and the drills run; the operators' kinds are in test_operators.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankzero.cluster.api import connect
from rankzero.cluster.run import PodView, Run
from rankzero.cluster.status import collect
from scripts.lab import kube, trainer_image
from scripts.stages import Stages
from tests.lab import releases
from tests.lab.conftest import WAIT, Namespace
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NAME = "train"
ENDS_WITHIN = 250.0


@pytest.fixture(scope="module")
def image(lab: None) -> str:  # noqa: ARG001
    """The trainer image, on the workers already."""
    return trainer_image.provide_on_nodes(Stages())


def start(namespace: Namespace, image: str, kind: str, *arguments: str, **values: Any) -> Run:
    """Install the drill's training as this kind; two ranks a pod."""
    launch = {"args": ["--pace", "0.1", *arguments]}
    releases.install(
        namespace,
        NAME,
        image,
        "experiments/drill.yaml",
        **{"workload": {"kind": kind}, "procsPerNode": 2, "launch": launch, **values},
    )
    return Run(connect(str(kube.kubeconfig_path())), namespace.name, NAME)


def both(run: Run) -> set[str]:
    """The pods' uids once there are two."""
    uids = {pod.uid for pod in run.pods()}
    return uids if len(uids) == 2 else set()


def finished(namespace: Namespace) -> dict[str, Any]:
    """The Job once it is complete or has failed, with the condition that says so as `end`."""

    def look() -> dict[str, Any]:
        job: dict[str, Any] = json.loads(namespace.kubectl("get", "job", NAME, "--output", "json"))
        ends = [
            item
            for item in job.get("status", {}).get("conditions", [])
            if item["type"] in {"Complete", "Failed"} and item["status"] == "True"
        ]
        return {**job, "end": ends[0]} if ends else {}

    return until(look, timeout=ENDS_WITHIN, what="the Job has ended")


def test_a_job_makes_a_deleted_pod_anew_and_completes(namespace: Namespace, image: str) -> None:
    """Known failures A5 and A16: a pod that goes does not leave the others hanging, nor count as a failure."""
    run = start(namespace, image, "Job", "--steps", "60", workload={"kind": "Job", "backoffLimit": 0})

    def step() -> int:
        return int(((run.status() or {}).get("group", {}).get("progress") or {}).get("step", 0))

    until(lambda: step() >= 10, timeout=ENDS_WITHIN, what="step 10")
    (away,) = (pod.name for pod in run.pods() if not pod.rank0)
    run.delete_pod(away)

    job = finished(namespace)
    assert (job["end"]["type"], job["status"]["succeeded"]) == ("Complete", 2)
    assert away not in {pod.name for pod in run.pods()}
    document = collect(run)
    assert (document["workload"], document["state"]) == ("Job", "succeeded")
    first, last = document["outcome"]["attempts"]
    assert first["kind"] == "stopped"
    assert last["resumed_from"] >= 10


def test_a_bug_fails_a_job_without_a_new_pod(namespace: Namespace, image: str) -> None:
    """Known failure A8: the launchers try once more in place, and Kubernetes not at all."""
    run = start(namespace, image, "Job", "--steps", "20", "--fail-at", "3", "--fail-attempts", "always")
    before = until(lambda: both(run), timeout=ENDS_WITHIN, what="both pods")

    job = finished(namespace)
    assert (job["end"]["type"], job["end"]["reason"]) == ("Failed", "PodFailurePolicy")

    def ended() -> list[PodView]:
        pods = run.pods()
        return pods if all(pod.has_ended for pod in pods) else []

    after = until(ended, timeout=ENDS_WITHIN, what="the pods have ended")
    assert {pod.uid for pod in after} <= before
    document = collect(run)
    assert document["state"] == "failed"
    assert "the same error at the same step twice" in document["outcome"]["reason"]


def test_a_single_pod_ends_with_its_run(namespace: Namespace, image: str) -> None:
    run = start(namespace, image, "Pod", "--steps", "10", nodes=1)
    namespace.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{NAME}", WAIT)
    document = collect(run)
    assert (document["workload"], document["state"], document["replicas"]) == ("Pod", "succeeded", 0)
    assert [(pod["name"], pod["rank0"]) for pod in document["pods"]] == [(NAME, True)]
