"""The chart's kinds for Kubeflow under their real controllers: two pods of two ranks train to the end together.

The operators are built from their own modules and installed from their own manifests (scripts/lab/operators).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from rankzero.cluster.status import collect
from scripts.lab import kube, trainer_image
from scripts.lab.operators import install as operators
from scripts.stages import Stages
from tests.lab import judgements, releases
from tests.lab.conftest import Namespace, pod
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1800, func_only=True)]

ENDS_WITHIN = 400.0


@dataclass(frozen=True)
class Kind:
    """A kind of workload, what runs it, and how that says that it has ended well."""

    name: str
    operators: tuple[str, ...]
    resource: str
    done: str


KINDS = (
    Kind("PyTorchJob", ("training-operator",), "pytorchjobs.kubeflow.org", "Succeeded"),
    Kind("TrainJob", ("jobset", "trainer"), "trainjobs.trainer.kubeflow.org", "Complete"),
)


@pytest.fixture(scope="module")
def image(lab: None) -> str:  # noqa: ARG001
    """The trainer image, on the workers already."""
    return trainer_image.provide_on_nodes(Stages())


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def kind(lab: None, request: pytest.FixtureRequest) -> Iterator[Kind]:  # noqa: ARG001
    """Its operators run, and are gone afterwards."""
    kind: Kind = request.param
    try:
        operators.up(Stages(), kind.operators)
        yield kind
    finally:
        operators.down(Stages(), kind.operators)


def conditions(namespace: Namespace, kind: Kind) -> set[str]:
    """The conditions that the operator says hold."""
    found = json.loads(namespace.kubectl("get", kind.resource, "train", "--output", "json"))
    return {one["type"] for one in found.get("status", {}).get("conditions", []) if one["status"] == "True"}


def start(namespace: Namespace, kind: Kind, image: str, *arguments: str) -> Run:
    """Install the drill's training as this kind, two ranks a pod."""
    launch = {"args": ["--pace", "0.1", *arguments]}
    values = {"workload": {"kind": kind.name}, "procsPerNode": 2, "launch": launch}
    releases.install(namespace, "train", image, "experiments/drill.yaml", **values)
    return Run(connect(str(kube.kubeconfig_path())), namespace.name, "train")


def both(run: Run) -> set[str]:
    """The pods' uids once there are two."""
    uids = {pod.uid for pod in run.pods()}
    return uids if len(uids) == 2 else set()


def test_two_pods_of_two_ranks_train_to_the_end(namespace: Namespace, kind: Kind, image: str) -> None:
    run = start(namespace, kind, image, "--steps", "20")
    until(lambda: kind.done in conditions(namespace, kind), timeout=ENDS_WITHIN, what=f"a {kind.name} {kind.done}")

    said = namespace.kubectl("logs", "--selector", "app.kubernetes.io/instance=train", "--tail", "-1")
    # Known failure of the field: each pod trains alone, and the job says that it is complete.
    assert "attempt 1: 2 x 2 processes" in said
    assert "the run has succeeded" in said
    document = collect(run)
    assert (document["workload"], document["state"]) == (kind.name, "succeeded")


def test_a_deleted_pod_is_made_anew_and_the_run_goes_on(namespace: Namespace, kind: Kind, image: str) -> None:
    """Known failure A5. The pod's exit status is what asks the operator for another."""
    run = start(namespace, kind, image, "--steps", "60")

    def step() -> int:
        return int(((run.status() or {}).get("group", {}).get("progress") or {}).get("step", 0))

    until(lambda: step() >= 10, timeout=ENDS_WITHIN, what="step 10")
    (away,) = (pod for pod in run.pods() if not pod.rank0)
    run.delete_pod(away.name)
    until(lambda: kind.done in conditions(namespace, kind), timeout=ENDS_WITHIN, what=f"a {kind.name} {kind.done}")
    assert away.uid not in {pod.uid for pod in run.pods()}
    document = collect(run)
    assert document["state"] == "succeeded"
    assert [attempt["kind"] for attempt in document["outcome"]["attempts"]] == ["stopped", None]


def test_a_bug_fails_the_run_without_a_new_pod(namespace: Namespace, kind: Kind, image: str) -> None:
    """Known failure A8."""
    run = start(namespace, kind, image, "--steps", "20", "--fail-at", "3", "--fail-attempts", "always")
    before = until(lambda: both(run), timeout=ENDS_WITHIN, what="both pods")
    until(lambda: "Failed" in conditions(namespace, kind), timeout=ENDS_WITHIN, what=f"a {kind.name} that has failed")
    assert {pod.uid for pod in run.pods()} <= before
    document = collect(run)
    assert document["state"] == "failed"
    assert "the same error at the same step twice" in document["outcome"]["reason"]


def test_the_api_refuses_what_the_guide_says_is_refused_and_nothing_else(namespace: Namespace, kind: Kind) -> None:
    """Known failure A13."""
    judgements.hold(namespace, {"workload.kind": kind.name})


def test_an_upgrade_is_not_taken_up_by_running_pods(namespace: Namespace, kind: Kind, image: str) -> None:
    """What `rankzero diff` says of it: the pods stay, and train on as they were installed."""
    steps = ("--pace", "0.1", "--steps", "40")
    run = start(namespace, kind, image, "--steps", "40")
    before = until(lambda: both(run), timeout=ENDS_WITHIN, what="both pods")
    launch = {"args": [*steps], "heartbeatTimeout": 90}
    releases.upgrade(
        namespace,
        "train",
        image,
        "experiments/drill.yaml",
        workload={"kind": kind.name},
        procsPerNode=2,
        launch=launch,
    )
    until(lambda: kind.done in conditions(namespace, kind), timeout=ENDS_WITHIN, what=f"a {kind.name} {kind.done}")
    assert {pod.uid for pod in run.pods()} == before
    document = collect(run)
    assert (document["state"], len(document["outcome"]["attempts"])) == ("succeeded", 1)


def test_an_operator_that_is_taken_out_takes_the_objects_of_its_kinds_along(namespace: Namespace) -> None:
    operators.up(Stages(), ["jobset"])
    replicated = {"name": "none", "template": {"spec": {"template": {"spec": pod("none", "true")["spec"]}}}}
    namespace.apply(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "none"},
            "spec": {"suspend": True, "replicatedJobs": [replicated]},
        }
    )
    operators.down(Stages(), ["jobset"])
    assert namespace.kubectl("get", "jobs", "--output", "name") == ""
    assert "jobset" not in kube.kubectl("get", "crd,namespaces,clusterroles,validatingwebhookconfigurations")
