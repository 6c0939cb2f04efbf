"""The role drain on a worker: what it refuses stays as it was, and what it evicts may save first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from scripts.lab import kube
from scripts.lab.settings import WORKERS
from tests.lab.conftest import WAIT, Namespace, on, pod
from tests.lab.plays import play

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[1]
SAVES = "trap 'echo saved > /tmp/saved; sleep 2; exit 0' TERM; sleep infinity & wait"


@pytest.fixture(autouse=True)
def schedulable(lab: None) -> Iterator[None]:  # noqa: ARG001
    """The worker takes pods before and after each test."""
    yield
    kube.kubectl("uncordon", NODE.name)


def deployment(name: str, **metadata: Any) -> dict[str, Any]:
    """One pod on the worker with a controller."""
    template = pod(name, SAVES, **on(NODE))
    template["metadata"]["labels"] |= metadata
    template["spec"] |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 20}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {k: template[k] for k in ("metadata", "spec")}},
    }


def budget(name: str) -> dict[str, Any]:
    """A PodDisruptionBudget that allows no disruption of a deployment."""
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def started(namespace: Namespace, *objects: dict[str, Any]) -> set[str]:
    """Create objects, wait for their pods, and name those."""
    namespace.apply(*objects)
    for one in objects:
        if one["kind"] == "Deployment":
            namespace.kubectl("rollout", "status", f"deployment/{one['metadata']['name']}", WAIT)
        if one["kind"] == "Pod":
            namespace.kubectl("wait", "--for=condition=Ready", f"pod/{one['metadata']['name']}", WAIT)
    return on_node(namespace)


def on_node(namespace: Namespace) -> set[str]:
    """The namespace's pods that run on the worker and were not told to end."""
    items = json.loads(namespace.kubectl("get", "pods", "--output", "json"))["items"]
    return {
        item["metadata"]["name"]
        for item in items
        if item["spec"].get("nodeName") == NODE.name and "deletionTimestamp" not in item["metadata"]
    }


def cordoned() -> bool:
    return kube.kubectl("get", "node", NODE.name, "--output", "jsonpath={.spec.unschedulable}") == "true"


def test_without_leave_nothing_is_evicted_and_the_report_names_what_would_be(
    namespace: Namespace, tmp_path: Path
) -> None:
    (name,) = started(namespace, deployment("plain"))

    played = play(tmp_path, NODE, "drain")

    assert played.succeeded, played.output
    assert played.report["status"] == "waiting"
    assert f"{namespace.name}/{name}" in played.report["why"]
    assert "drain_ok=true" in played.report["why"]
    assert (on_node(namespace), cordoned()) == ({name}, False)


def test_a_pod_that_nothing_would_make_anew_is_named_and_none_is_evicted(namespace: Namespace, tmp_path: Path) -> None:
    before = started(namespace, deployment("plain"), pod("alone", "sleep infinity", **on(NODE)))

    played = play(tmp_path, NODE, "drain", drain_ok=True)

    assert not played.succeeded
    assert "alone has no controller" in played.report["why"]
    assert (on_node(namespace), cordoned()) == (before, False)


def test_a_disruption_budget_that_allows_nothing_leaves_every_pod_running_and_the_node_schedulable(
    namespace: Namespace, tmp_path: Path
) -> None:
    # "free" is listed before "held", and must not have been evicted by the time that "held" is found to be held.
    before = started(namespace, deployment("free"), deployment("held"), budget("held"))

    played = play(tmp_path, NODE, "drain", drain_ok=True, drain_timeout=3)

    assert not played.succeeded
    assert played.report["status"] == "failed"
    assert f"{namespace.name}/held-" in played.report["why"]
    assert "disruption budget held" in played.report["why"]
    assert (on_node(namespace), cordoned()) == (before, False)


def test_an_experiment_saves_within_its_grace_and_the_node_is_given_back(namespace: Namespace, tmp_path: Path) -> None:
    labels = {contract.LABEL_NAME: contract.APP_NAME, contract.LABEL_INSTANCE: "mnist"}
    experiment = deployment("mnist", **labels)
    experiment["spec"]["template"]["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    (name,) = started(namespace, experiment)

    played = play(tmp_path, NODE, "drain", drain_ok=True)

    assert played.succeeded, played.output
    assert played.report["experiments"] == [f"{namespace.name}/mnist"]
    assert "told by SIGTERM" in played.output
    assert (on_node(namespace), cordoned()) == (set(), True)
    events = namespace.kubectl("get", "events", "--field-selector", f"involvedObject.name={name}")
    assert "Killing" in events

    assert play(tmp_path, NODE, "drain", "uncordon").succeeded
    assert not cordoned()


def test_a_node_that_was_cordoned_before_stays_so(tmp_path: Path) -> None:
    kube.kubectl("cordon", NODE.name)

    played = play(tmp_path, NODE, "drain", "main", "uncordon", drain_ok=True)

    assert played.succeeded, played.output
    assert "was cordoned before, by somebody else" in played.output
    assert cordoned()
