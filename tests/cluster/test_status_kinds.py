"""``rankzero status`` finds the workload of a release, its rank 0 and its end, whatever kind it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rankzero import contract
from rankzero.cluster.run import Run
from rankzero.cluster.status import collect, lines
from rankzero.errors import ClusterError
from tests.cluster.fake_api import NAME, NAMESPACE, PODS, STATUS_PORT, FakeApi, outcome, serve

GROUPS = {
    "Job": "/apis/batch/v1/namespaces/team/jobs/mnist",
    "Pod": f"{PODS}/mnist",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/mnist",
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/mnist",
}
RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes/mnist"
HOSTS = {"Job": "mnist-0", "Pod": "mnist", "PyTorchJob": "mnist-master-0", "TrainJob": "mnist-node-0-0"}
KINDS = pytest.mark.parametrize("kind", list(GROUPS))
ENDED = {
    "Job": {"conditions": [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]},
    "Pod": {"phase": "Failed"},
    "PyTorchJob": {"conditions": [{"type": "Running", "status": "False"}, {"type": "Failed", "status": "True"}]},
    "TrainJob": {"conditions": [{"type": "Complete", "status": "False"}, {"type": "Failed", "status": "True"}]},
}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serve() as served:
        yield served


def put(api: FakeApi, kind: str, *, ended: bool = False) -> None:
    """A release of this kind, of two pods where it can."""
    env = [{"name": contract.ENV_RUN_ID, "value": "a"}]
    pod = {"spec": {"containers": [{"name": "x", "env": env}]}}
    specs: dict[str, Any] = {
        "Job": {"parallelism": 2, "template": pod},
        "Pod": pod["spec"],
        "PyTorchJob": {
            "pytorchReplicaSpecs": {role: {"replicas": 1, "template": pod} for role in ("Master", "Worker")}
        },
        "TrainJob": {"trainer": {"numNodes": 2}},
    }
    metadata = {"name": NAME, "uid": NAME, "creationTimestamp": "1970-01-01T00:01:40Z"}
    status = ENDED[kind] if ended else {"phase": "Running"}
    api.answers[GROUPS[kind]] = (200, {"metadata": metadata, "spec": specs[kind], "status": status})
    if kind == "TrainJob":
        runtime = {"template": {"spec": {"replicatedJobs": [{"template": {"spec": {"template": pod}}}]}}}
        api.answers[RUNTIME] = (200, {"metadata": metadata, "spec": runtime})


def put_rank0(api: FakeApi, kind: str, *names: str, phases: tuple[str, ...] = ("Running",)) -> None:
    """Pods of node rank 0, the oldest first."""
    env = [{"name": contract.ENV_RANK0_HOST, "value": f"{HOSTS[kind]}.mnist"}]
    ports = [{"name": contract.STATUS_PORT_NAME, "containerPort": STATUS_PORT}]
    containers = [{"name": "x", "env": env, "ports": ports, "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    api.answers[PODS] = (
        200,
        {
            "items": [
                {
                    "metadata": {"name": name, "uid": name, "creationTimestamp": f"1970-01-01T00:02:0{number}Z"},
                    "spec": {"hostname": HOSTS[kind], "containers": containers},
                    "status": {"phase": phase},
                }
                for number, (name, phase) in enumerate(zip(names, phases, strict=True))
            ]
        },
    )


def collected(api: FakeApi) -> dict[str, Any]:
    return collect(Run(api.client(), NAMESPACE, NAME))


@KINDS
def test_a_running_run_is_told_by_the_pod_with_rank_0s_host_name(api: FakeApi, kind: str) -> None:
    put(api, kind)
    name = f"{HOSTS[kind]}-x1y2z"
    put_rank0(api, kind, name)
    page = {"group": {"state": "running", "absent": [], "attempts": []}}
    api.answers[f"{PODS}/{name}:{STATUS_PORT}/proxy/status"] = (200, page)
    document = collected(api)
    assert (document["workload"], document["state"]) == (kind, "running")
    assert document["replicas"] == (1 if kind == "Pod" else 2)
    assert document["run_id"] == "a"


@KINDS
def test_the_successor_of_rank_0s_pod_is_asked_and_not_the_pod_that_has_ended(api: FakeApi, kind: str) -> None:
    """A Job keeps the pods that it has replaced."""
    put(api, kind)
    put_rank0(api, kind, "old", "new", phases=("Failed", "Running"))
    api.answers[f"{PODS}/new:{STATUS_PORT}/proxy/status"] = (200, {"group": {"state": "running", "absent": []}})
    document = collected(api)
    assert document["state"] == "running"
    assert {pod["name"]: pod["gpus"] for pod in document["pods"]} == {"old": 0, "new": 1}


@KINDS
def test_an_ended_run_is_told_by_its_event(api: FakeApi, kind: str) -> None:
    put(api, kind, ended=True)
    put_rank0(api, kind, "a", phases=("Failed",))
    api.put_events((150, outcome("failed")))
    document = collected(api)
    assert (document["state"], document["replicas"]) == ("failed", 0)
    assert "  it has failed" in lines(document)


@KINDS
def test_without_an_event_the_object_itself_says_how_the_run_ended(api: FakeApi, kind: str) -> None:
    """Its Event has expired, or a deadline has ended the run."""
    put(api, kind, ended=True)
    document = collected(api)
    assert document["state"] == "failed"
    assert f"  so says its {kind}; see mnist/a/outcome.json on the checkpoint volume" in lines(document)


def test_a_job_that_was_ended_says_why(api: FakeApi) -> None:
    put(api, "Job", ended=True)
    why = "Job was active longer than specified deadline"
    api.answers[GROUPS["Job"]][1]["status"]["conditions"][1]["message"] = why
    assert f"  so says its Job: {why}; see mnist/a/outcome.json on the checkpoint volume" in lines(collected(api))


def test_who_may_not_read_the_operators_kinds_is_told_that_there_is_no_run(api: FakeApi) -> None:
    """Most clusters serve none of them, and their roles do not name them."""
    api.answers[GROUPS["PyTorchJob"]] = api.answers[GROUPS["TrainJob"]] = (403, {})
    with pytest.raises(ClusterError, match="there is no run mnist"):
        collected(api)
    api.answers[GROUPS["Job"]] = (403, {})
    with pytest.raises(ClusterError, match="Job team/mnist: the API answered 403"):
        collected(api)


@pytest.mark.parametrize(
    ("events", "said"),
    [([], "Error with status 69: it has failed"), ([(150, outcome("failed"))], "Error with status 69")],
)
def test_a_pod_that_failed_says_with_which_status_and_why_unless_the_run_says_it(
    api: FakeApi, events: list[tuple[float, Any]], said: str
) -> None:
    put(api, "Job")
    put_rank0(api, "Job", "a", phases=("Failed",))
    message = "it has failed\nTraceback (most recent call last):"
    ended = {"terminated": {"exitCode": 69, "reason": "Error", "message": message}}
    container = {"name": "x", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    api.answers[PODS][1]["items"][0]["status"]["containerStatuses"] = [container]
    api.put_events(*events)
    assert f"  a  Failed  no node yet  {said}" in lines(collected(api))
