"""The five kinds of workload: one pod template, and what each kind wants beside it."""

from __future__ import annotations

from typing import Any

import pytest

from rankzero import contract
from scripts.generate import helm
from tests.chart.rendering import (
    container_of,
    environment,
    minimal,
    only,
    pod_spec,
    pod_templates,
    refusals,
    render,
    trainer,
    variables,
)

KINDS = pytest.mark.parametrize("kind", contract.WORKLOAD_KINDS)
HOSTS = {
    "StatefulSet": "mnist-0.mnist",
    "Job": "mnist-0.mnist",
    "Pod": "mnist.mnist",
    "PyTorchJob": "mnist-master-0.mnist",
    "TrainJob": "mnist-node-0-0.mnist",
}
OF_ITS_KIND = {"command", "env", "name", "ports", "readinessProbe"}
"""Of a container, what may differ from one kind to another."""


def of_kind(kind: str, **changes: Any) -> dict[str, Any]:
    """The least values with this kind, on two nodes where it can."""
    return minimal({"workload.kind": kind, "nodes": 1 if kind == "Pod" else 2, **changes})


@KINDS
def test_every_kind_runs_the_same_container(kind: str) -> None:
    plain = trainer(render(of_kind("StatefulSet")))
    for template in pod_templates(render(of_kind(kind))):
        container = container_of(template)
        assert {key: value for key, value in container.items() if key not in OF_ITS_KIND} == {
            key: value for key, value in plain.items() if key not in OF_ITS_KIND
        }
        assert variables(container).keys() == variables(plain).keys()


@KINDS
def test_the_pods_find_rank_0_by_a_name_in_the_service_of_the_release(kind: str) -> None:
    """Known failure A4. The first label of the name is the host name that rank 0's pod gets."""
    manifests = render(of_kind(kind))
    told = environment(manifests)
    assert told[contract.ENV_WORKLOAD] == f"{kind}/mnist"
    assert only(manifests, kind)["apiVersion"] == contract.WORKLOAD_APIS[kind]
    assert told[contract.ENV_RANK0_HOST] == HOSTS[kind]
    spec = pod_spec(manifests)
    if kind == "StatefulSet":  # its controller sets host name and subdomain
        assert only(manifests, kind)["spec"]["serviceName"] == "mnist"
    else:
        assert spec["subdomain"] == only(manifests, "Service")["metadata"]["name"]
    if "hostname" in spec:  # the controllers of Jobs set it, as those of a StatefulSet
        assert spec["hostname"] == HOSTS[kind].partition(".")[0]
    assert ("hostname" in spec) == (kind in {"Pod", "PyTorchJob"})


@KINDS
def test_every_pod_carries_the_labels_by_which_service_and_budget_find_it(kind: str) -> None:
    manifests = render(of_kind(kind))
    wanted = only(manifests, "Service")["spec"]["selector"]
    assert only(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == wanted
    for template in pod_templates(manifests):
        assert wanted.items() <= template["metadata"]["labels"].items()


@KINDS
def test_only_a_statefulset_is_scaled_and_every_run_may_say_how_it_ended(kind: str) -> None:
    resources = [rule["resources"] for rule in only(render(of_kind(kind)), "Role")["rules"]]
    assert ["events"] in resources
    assert (["statefulsets/scale"] in resources) == (kind == "StatefulSet")


@pytest.mark.parametrize(("away", "least"), [(1, 3), (0, 4), (9, 0)])
def test_evictions_are_limited_by_a_number_of_pods_where_their_owner_cannot_be_asked(away: int, least: int) -> None:
    """Kubernetes takes maxUnavailable only for owners that can be scaled, which a Job cannot."""
    values = of_kind("Job", nodes=4) | {"podDisruptionBudget": {"maxUnavailable": away}}
    budget = only(render(values), "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == least
    assert "maxUnavailable" not in budget


@pytest.mark.parametrize("kind", ["Job", "TrainJob"])
def test_a_job_replaces_pods_but_not_a_run_that_has_ended(kind: str) -> None:
    """Known failures A8 and A16: a bug is not retried, and no pod shares its rank with its predecessor."""
    manifests = render(of_kind(kind, **{"workload.backoffLimit": 4}))
    spec = job_spec(manifests)
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (4, "Failed")
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    disrupted, goes_on, ended = spec["podFailurePolicy"]["rules"]
    assert disrupted["action"] == goes_on["action"] == "Ignore"
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    name = trainer(manifests)["name"]
    assert goes_on["onExitCodes"] == {
        "containerName": name, "operator": "In", "values": list(contract.POD_ENDS_RUN_GOES_ON),
    }  # fmt: skip
    assert ended["action"] == "FailJob"
    assert ended["onExitCodes"] == {"containerName": name, "operator": "NotIn", "values": list(contract.POD_FAILED)}


@pytest.mark.parametrize("kind", ["Job", "TrainJob"])
def test_a_revision_that_is_not_there_fails_a_job_at_once_and_a_server_that_is_away_does_not(kind: str) -> None:
    """The init container's own status, which no rule on the trainer sees; 69 counts in the limit as another failure."""
    manifests = render(of_kind(kind, **{"code.git": {"repository": "https://git.example.com/a", "revision": "v1"}}))
    spec = job_spec(manifests)
    (init,) = spec["template"]["spec"]["initContainers"]
    rules = [rule for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    of_code = [rule for rule in rules if rule["onExitCodes"]["containerName"] == init["name"]]
    assert [(rule["action"], rule["onExitCodes"]["values"]) for rule in of_code] == [("FailJob", [contract.EXIT_USAGE])]
    assert init["name"] == contract.CODE_CONTAINER_NAME


def job_spec(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The Job's spec, a TrainJob's from its runtime."""
    (found,) = (manifest["spec"] for manifest in manifests if manifest["kind"] in {"Job", "TrainingRuntime"})
    spec: dict[str, Any] = found
    return spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"] if "mlPolicy" in spec else spec


def test_a_pytorchjob_has_one_master_and_its_workers_come_after_it() -> None:
    manifests = render(of_kind("PyTorchJob", nodes=4, procsPerNode=2, **{"resources.gpus": 2}))
    spec = only(manifests, "PyTorchJob")["spec"]
    assert spec["nprocPerNode"] == "2"
    assert {role: part["replicas"] for role, part in spec["pytorchReplicaSpecs"].items()} == {"Master": 1, "Worker": 3}
    assert {part["restartPolicy"] for part in spec["pytorchReplicaSpecs"].values()} == {"ExitCode"}
    told = [variables(container_of(template)) for template in pod_templates(manifests)]
    assert [each[contract.ENV_FIRST_NODE_RANK] for each in told] == ["0", "1"]
    assert {each[contract.ENV_NODE_RANK] for each in told} == {"metadata.labels['training.kubeflow.org/replica-index']"}


def test_a_pytorchjob_on_one_node_has_a_master_only() -> None:
    spec = only(render(of_kind("PyTorchJob", nodes=1)), "PyTorchJob")["spec"]
    assert list(spec["pytorchReplicaSpecs"]) == ["Master"]


def test_the_operator_of_a_pytorchjob_finds_container_and_port_by_their_names() -> None:
    """Without a port of that name it adds one, which two releases on the network of a node would both want."""
    for template in pod_templates(render(of_kind("PyTorchJob"))):
        container = container_of(template)
        assert container["name"] == contract.PYTORCHJOB_CONTAINER_NAME
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
            contract.PYTORCHJOB_PORT_NAME: contract.RENDEZVOUS_PORT,
            contract.STATUS_PORT_NAME: contract.STATUS_PORT,
        }


def test_the_master_of_a_pytorchjob_is_ready_without_its_workers() -> None:
    """Known failures A2 and A12: the init container of a worker waits for the master's name, which has to be ready."""
    master, worker = pod_templates(render(of_kind("PyTorchJob")))
    assert "readinessProbe" not in container_of(master)
    assert container_of(worker)["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_trainer_is_told_of_the_group_and_finds_job_and_container_by_their_names() -> None:
    """Without the section `trainer` its pods would not be told of each other."""
    manifests = render(of_kind("TrainJob", procsPerNode=8, **{"resources.gpus": 8}))
    spec = only(manifests, "TrainJob")["spec"]
    assert spec["trainer"] == {"numNodes": 2, "numProcPerNode": 8}
    runtime = only(manifests, "TrainingRuntime")
    assert spec["runtimeRef"]["name"] == runtime["metadata"]["name"]
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == trainer(manifests)["name"] == contract.TRAINJOB_CONTAINER_NAME
    assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def test_helm_makes_the_runtime_before_the_trainjob_that_names_it() -> None:
    """The Trainer refuses a TrainJob without it. Helm prints objects in the order in which it makes them."""
    kinds = [manifest["kind"] for manifest in render(of_kind("TrainJob"))]
    assert kinds.index("TrainingRuntime") < kinds.index("TrainJob")


def test_a_pod_ends_with_its_run() -> None:
    manifests = render(of_kind("Pod", podAnnotations={"a": "b"}, podLabels={"team": "vision"}))
    pod = only(manifests, "Pod")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["annotations"]["a"] == "b"
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert environment(manifests)[contract.ENV_NODE_RANK] == "0"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Job", ["spec"]),
        ("Pod", ["spec"]),
        ("PyTorchJob", ["spec", "runPolicy"]),
        ("TrainingRuntime", ["spec", "template", "spec", "replicatedJobs", 0, "template", "spec"]),
    ],
)
def test_a_deadline_stands_where_the_kind_wants_it_and_is_left_out_otherwise(kind: str, path: list[Any]) -> None:
    workload = "TrainJob" if kind == "TrainingRuntime" else kind
    for seconds in (0, 3600):
        part: Any = only(render(of_kind(workload, **{"workload.activeDeadlineSeconds": seconds})), kind)
        for key in path:
            part = part[key]
        assert part.get("activeDeadlineSeconds", 0) == seconds


@pytest.mark.parametrize(("kind", "path"), [("Job", []), ("PyTorchJob", ["runPolicy"])])
def test_an_ended_run_stays_unless_a_time_is_given(kind: str, path: list[str]) -> None:
    for seconds in (0, 60):
        part = only(render(of_kind(kind, **{"workload.ttlSecondsAfterFinished": seconds})), kind)["spec"]
        for key in path:
            part = part[key]
        assert part.get("ttlSecondsAfterFinished", 0) == seconds


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"workload.kind": "PyTorchJob", "nodes": 2, "resources": {"guaranteed": True, "cpu": 8, "memory": "8Gi"}},
        "workload.kind is PyTorchJob but resources.guaranteed is true, and the operator adds an init container to the "
        "workers whose limits are not its requests, so that no CPU is pinned: "
        "set resources.guaranteed to false or workload.kind to StatefulSet or Job",
    ),
    (
        {"workload.kind": "PyTorchJob", "nodes": 2, "hami.enabled": True},
        "workload.kind is PyTorchJob but hami.enabled is true, and HAMi loses track of the cards of its workers, to "
        "which the operator adds an init container: set workload.kind to StatefulSet or Job",
    ),
    (
        {"workload.kind": "Pod", "nodes": 2},
        "workload.kind is Pod but nodes is 2, and a Pod is one: set nodes to 1 or workload.kind to StatefulSet or Job",
    ),
    (
        {"workload.activeDeadlineSeconds": 60},
        "workload.activeDeadlineSeconds is 60 but workload.kind is StatefulSet, which knows no deadline: "
        "set it to 0 or workload.kind to Job",
    ),
    *(
        (
            {"workload.kind": kind, "workload.ttlSecondsAfterFinished": 60},
            f"workload.ttlSecondsAfterFinished is 60 but workload.kind is {kind}, which nothing removes after its end: "
            "set it to 0 or workload.kind to Job",
        )
        for kind in ("StatefulSet", "Pod", "TrainJob")
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=lambda case: str(case)[:60])
def test_what_a_kind_cannot_do_is_refused_with_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]


@pytest.mark.parametrize(
    ("kind", "api", "operator"),
    [
        ("PyTorchJob", "kubeflow.org/v1/PyTorchJob", "training operator"),
        ("TrainJob", "trainer.kubeflow.org/v1alpha1/TrainJob", "Trainer and JobSet"),
    ],
)
def test_a_kind_that_the_cluster_does_not_serve_is_refused(kind: str, api: str, operator: str) -> None:
    others = [served for served in helm.OPTIONAL_APIS if served != api]
    assert refusals(of_kind(kind), optional_apis=others) == [
        f"workload.kind is {kind} but the cluster does not serve {api}: install Kubeflow's {operator}, "
        f"or set workload.kind to Job; without a cluster say --api-versions {api}"
    ]
    assert render(of_kind(kind), optional_apis=[api])


LONGEST: list[tuple[str, int, int, str]] = [
    ("StatefulSet", 2, 52, f"-{2**32 - 1}"),  # a label with the hash of a revision
    ("Job", 10000, 52, "-9999-abcde"),
    ("PyTorchJob", 2, 53, "-master-0"),
    ("PyTorchJob", 10000, 51, "-worker-9998"),
    ("TrainJob", 2, 48, "-node-0-1-abcde"),
    ("TrainJob", 10000, 45, "-node-0-9999-abcde"),
]


@pytest.mark.parametrize(("kind", "nodes", "most", "suffix"), LONGEST)
def test_a_release_name_from_which_a_host_name_or_label_would_be_cut_is_refused(
    kind: str, nodes: int, most: int, suffix: str
) -> None:
    """Known failure A15. Helm itself takes no name of more than 53 characters."""
    name = "a" * most
    assert len(name + suffix) <= 63
    assert render(of_kind(kind, nodes=nodes), release=name)
    if most < 53:
        assert len(name + suffix) == 63
        assert refusals(of_kind(kind, nodes=nodes), release=f"{name}a") == [
            f"the release name {name}a has {most + 1} characters, the most possible for a {kind} is {most}: "
            "choose a shorter one"
        ]
