"""Gangs and queues: what ties pods together for each scheduler, and what is refused before they wait for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.generate import files, helm
from tests.chart.rendering import Manifest, documents, minimal, only, pod_spec, refusals, render

APIS = {
    "native": "scheduling.k8s.io/v1beta1/PodGroup",
    "volcano": "scheduling.volcano.sh/v1beta1/PodGroup",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1/PodGroup",
}


def template(manifests: list[Manifest]) -> Manifest:
    """The pods' template."""
    found: Manifest = only(manifests, "StatefulSet")["spec"]["template"]
    return found


def gang(mode: str, **changes: Any) -> list[Manifest]:
    """A release of four pods in a gang of this kind."""
    return render(minimal({"nodes": 4, "scheduling.gang": mode, **changes}))


def test_without_a_gang_nothing_speaks_of_one() -> None:
    manifests = render(minimal({"nodes": 4}))
    assert "PodGroup" not in {manifest["kind"] for manifest in manifests}
    assert not {"schedulingGroup", "schedulerName"} & pod_spec(manifests).keys()
    assert not [name for name in template(manifests)["metadata"]["annotations"] if "scheduling" in name]


@pytest.mark.parametrize("mode", APIS)
def test_the_group_is_as_large_as_the_release(mode: str) -> None:
    """Volcano: fewer members than pods is a gang of fewer."""
    group = only(gang(mode), "PodGroup")
    assert f"{group['apiVersion']}/PodGroup" == APIS[mode]
    least = group["spec"]["schedulingPolicy"]["gang"]["minCount"] if mode == "native" else group["spec"]["minMember"]
    assert least == only(gang(mode), "StatefulSet")["spec"]["replicas"] == 4


def test_a_native_gang_is_a_field_of_the_pods() -> None:
    manifests = gang("native")
    assert pod_spec(manifests)["schedulingGroup"] == {"podGroupName": only(manifests, "PodGroup")["metadata"]["name"]}
    assert "schedulerName" not in pod_spec(manifests)


def test_a_native_gang_is_preempted_whole() -> None:
    """The pods that are left would keep their GPUs and wait; tests/lab/test_preemption.py watches the scheduler."""
    assert only(gang("native"), "PodGroup")["spec"]["disruptionMode"] == {"all": {}}


def test_pods_of_a_native_gang_have_the_priority_of_their_group() -> None:
    """Any other and Kubernetes places none of them (SchedulerError)."""
    manifests = gang("native", **{"scheduling.priorityClassName": "high"})
    assert (
        only(manifests, "PodGroup")["spec"]["priorityClassName"] == pod_spec(manifests)["priorityClassName"] == "high"
    )
    assert "priorityClassName" not in only(gang("native"), "PodGroup")["spec"]


def test_volcano_gets_the_one_annotation_that_it_reads_and_its_scheduler() -> None:
    """Without it Volcano makes a group of one for each pod: the gang is broken without a word."""
    manifests = gang("volcano", podAnnotations={"example.com/owner": "vision"})
    annotations = template(manifests)["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == only(manifests, "PodGroup")["metadata"]["name"]
    assert annotations["example.com/owner"] == "vision"
    assert pod_spec(manifests)["schedulerName"] == "volcano"
    assert "schedulingGroup" not in pod_spec(manifests)


def test_the_scheduler_plugins_get_their_label_and_their_scheduler() -> None:
    manifests = gang("coscheduling")
    name = only(manifests, "PodGroup")["metadata"]["name"]
    assert template(manifests)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == name
    assert "scheduling.x-k8s.io/pod-group" not in only(manifests, "StatefulSet")["spec"]["selector"]["matchLabels"]
    assert pod_spec(manifests)["schedulerName"] == "scheduler-plugins-scheduler"


@pytest.mark.parametrize("mode", ["volcano", "coscheduling"])
def test_the_group_says_what_all_pods_ask_for_together(mode: str) -> None:
    """With it Volcano's condition names what is short."""
    resources = {"gpus": 8, "cpu": "500m", "cpuBurst": True, "memory": "1.5Gi"}
    group = only(gang(mode, resources=resources), "PodGroup")
    assert group["spec"]["minResources"] == {"nvidia.com/gpu": "32", "cpu": "2000m", "memory": "6Gi"}
    odd = only(gang(mode, nodes=3, resources={"gpus": 0, "cpu": 0.5}), "PodGroup")
    assert odd["spec"]["minResources"] == {"cpu": "1.5"}


def test_pods_that_ask_for_nothing_make_a_group_that_asks_for_nothing() -> None:
    assert "minResources" not in only(gang("volcano", **{"resources.gpus": 0}), "PodGroup")["spec"]


def test_volcanos_queue_and_order_are_those_of_the_group() -> None:
    manifests = gang("volcano", **{"scheduling.volcano.queue": "vision", "scheduling.priorityClassName": "high"})
    spec = only(manifests, "PodGroup")["spec"]
    assert (spec["queue"], spec["priorityClassName"]) == ("vision", pod_spec(manifests)["priorityClassName"])
    assert "queue" not in only(gang("volcano"), "PodGroup")["spec"]


def test_scheduler_plugins_may_have_taken_the_place_of_the_cluster_s_scheduler() -> None:
    manifests = gang("coscheduling", **{"scheduling.schedulerName": "default-scheduler"})
    assert pod_spec(manifests)["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("mode", APIS)
def test_another_scheduler_can_be_named(mode: str) -> None:
    assert pod_spec(gang(mode, **{"scheduling.schedulerName": "batch"}))["schedulerName"] == "batch"


def test_kueue_finds_its_queue_on_the_workload_and_goes_with_a_gang() -> None:
    """Known failure: Kueue counts quota, not nodes, so half of a group can be admitted to run."""
    manifests = gang("native", **{"scheduling.kueue": {"queue": "vision", "priorityClass": "nightly"}})
    labels = only(manifests, "StatefulSet")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "vision"
    assert labels["kueue.x-k8s.io/priority-class"] == "nightly"
    assert "kueue" not in str(template(manifests))
    assert pod_spec(manifests)["schedulingGroup"] == {"podGroupName": "mnist"}
    assert "kueue" not in str(only(manifests, "Service"))


def test_the_notes_say_where_to_read_why_a_group_waits(tmp_path: Path) -> None:
    """Kubernetes, Volcano and scheduler-plugins each have a `podgroup`; the short name means any of them."""
    queue = f"kubectl -n {helm.NAMESPACE} get workloads.kueue.x-k8s.io   (whether queue vision has admitted it)"
    for mode, api in APIS.items():
        group = f"kubectl -n {helm.NAMESPACE} describe podgroups.{api.partition('/')[0]} mnist"
        assert note(tmp_path / mode, {"scheduling.gang": mode}) == [group]
        both = {"scheduling.gang": mode, "scheduling.kueue.queue": "vision"}
        assert note(tmp_path / f"{mode}-in-queue", both) == [queue, group]
    assert note(tmp_path / "none", {}) == []


def note(folder: Path, changes: dict[str, Any]) -> list[str]:
    """The lines in Helm's notes. Helm shows notes only of releases in a cluster, so an object has them here."""
    shutil.copytree(files.CHART, folder)
    template = '{"kind": "Note", "text": {{ include "rankzero.gang.note" . | quote }}}'
    (folder / "templates" / "note.yaml").write_text(template, encoding="utf-8")
    values = folder / "given.yaml"
    values.write_text(yaml.safe_dump(minimal(changes)), encoding="utf-8")
    apis = [part for api in helm.OPTIONAL_APIS for part in ("--api-versions", api)]
    text = helm.helm("template", "mnist", folder, "--namespace", helm.NAMESPACE, "--values", values, *apis)
    lines: list[str] = only(documents(text), "Note")["text"].split("\n")
    return [line for line in lines if line]


WITHOUT = {
    "native": "would drop the pods' group without a word: switch its gate GenericWorkload on (Kubernetes 1.37)",
    "volcano": "has no Volcano: install it",
    "coscheduling": "has no scheduler-plugins: install them",
}


@pytest.mark.parametrize("mode", APIS)
def test_a_gang_whose_api_is_not_served_is_refused(mode: str) -> None:
    """With the gate off the API server drops schedulingGroup from the pods, and half a group starts."""
    others = [api for api in helm.OPTIONAL_APIS if api != APIS[mode]]
    assert refusals(minimal({"scheduling.gang": mode}), optional_apis=others) == [
        f"scheduling.gang is {mode} but the cluster does not serve {APIS[mode]} and {WITHOUT[mode]}, or set "
        f"scheduling.gang to none; without a cluster give helm --api-versions {APIS[mode]}"
    ]


def test_a_queue_of_kueue_that_is_not_installed_is_refused() -> None:
    values = minimal({"scheduling.kueue.queue": "vision"})
    assert refusals(values, optional_apis=()) == [
        "scheduling.kueue.queue is vision but the cluster serves no LocalQueue, and the pods would start without "
        "waiting for it: install Kueue or remove the queue; without a cluster give helm --api-versions "
        "kueue.x-k8s.io/v1beta2/LocalQueue"
    ]
    assert render(values, optional_apis=["kueue.x-k8s.io/v1beta1/LocalQueue"])


OWN_GROUPS = "makes groups of its own, as its operator is set up"
NO_FIELD = "keeps the field of its pods' group from them"
KINDS: dict[tuple[str, str], str] = {
    **{(mode, kind): "" for mode in APIS for kind in ("StatefulSet", "Job")},
    **{(mode, "Pod"): "is a single pod" for mode in APIS},
    **{("native", kind): NO_FIELD for kind in ("PyTorchJob", "TrainJob")},
    **{(mode, kind): OWN_GROUPS for mode in ("volcano", "coscheduling") for kind in ("PyTorchJob", "TrainJob")},
}
"""Why pods of a kind are in no gang; empty where they can be."""


@pytest.mark.parametrize(("mode", "kind"), KINDS)
def test_a_gang_is_made_of_the_pods_of_a_statefulset_or_a_job(mode: str, kind: str) -> None:
    """The operators' CRDs drop schedulingGroup from the pods' template."""
    values = minimal({"scheduling.gang": mode, "workload.kind": kind})
    why = KINDS[mode, kind]
    if why:
        assert refusals(values) == [
            f"scheduling.gang is {mode} but workload.kind is {kind}, which {why}: "
            "set scheduling.gang to none or workload.kind to StatefulSet or Job"
        ]
    else:
        assert only(render(values), "PodGroup")


@pytest.mark.parametrize("kind", ["Job", "Pod", "PyTorchJob", "TrainJob"])
def test_kueue_takes_every_kind(kind: str) -> None:
    workload = only(render(minimal({"scheduling.kueue.queue": "vision", "workload.kind": kind})), kind)
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision"


def test_a_job_in_a_native_gang_has_the_group_in_its_pods() -> None:
    manifests = gang("native", **{"workload.kind": "Job"})
    assert only(manifests, "Job")["spec"]["template"]["spec"]["schedulingGroup"] == {"podGroupName": "mnist"}
    assert only(manifests, "PodGroup")["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"scheduling.kueue.priorityClass": "nightly"},
        "scheduling.kueue.priorityClass is nightly but scheduling.kueue.queue is empty, and it orders nothing else: "
        "set the queue or remove it",
    ),
    (
        {"scheduling.gang": "native", "scheduling.volcano.queue": "vision"},
        "scheduling.volcano.queue is vision but scheduling.gang is native: "
        "set scheduling.gang to volcano or remove the queue",
    ),
    (
        {"scheduling.gang": "volcano", "scheduling.schedulerName": "default-scheduler"},
        "scheduling.schedulerName is default-scheduler but scheduling.gang is volcano, of whose groups it knows "
        "nothing: leave the name empty",
    ),
    *(
        (
            {f"{where}": {name: "a"}},
            f"{where}[{name}] is set, which on the pods alone makes no gang and waits in no queue: use {key}",
        )
        for where, name, key in (
            ("podLabels", "kueue.x-k8s.io/queue-name", "scheduling.kueue.queue"),
            ("podLabels", "kueue.x-k8s.io/priority-class", "scheduling.kueue.priorityClass"),
            ("podLabels", "scheduling.x-k8s.io/pod-group", "scheduling.gang: coscheduling"),
            ("podAnnotations", "scheduling.k8s.io/group-name", "scheduling.gang: volcano"),
        )
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=lambda case: str(case)[:60])
def test_a_gang_or_queue_that_would_have_no_effect_is_refused(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]
