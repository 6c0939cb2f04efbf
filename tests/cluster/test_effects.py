"""What an upgrade does to a run, judged from what the chart really renders."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rankzero.cluster.effects import OTHER_PLACE, REINSTALL, REINSTALL_LOSES, Change, Effect, effects
from scripts.generate import upgrades
from tests.chart.rendering import Manifest, minimal, only, render


def judged(change: dict[str, Any], base: dict[str, Any] | None = None) -> list[Change]:
    base = base or {}
    return effects(render(minimal(base)), render(minimal({**base, **change})))


def worst(change: dict[str, Any], base: dict[str, Any] | None = None) -> Effect:
    return judged(change, base)[0].effect


def test_the_same_values_do_nothing() -> None:
    assert judged({}) == []


@pytest.mark.parametrize("change", [{"image.tag": "0.2.0"}, {"train.epochs": 5}, {"nodes": 2}, {"run.id": "second"}])
def test_what_reaches_the_pods_restarts_the_group(change: dict[str, Any]) -> None:
    (found,) = judged(change, {"checkpoints.accessMode": "ReadWriteMany"})
    assert found.effect is Effect.RESTART
    assert found.target == "StatefulSet mnist"


def test_the_fields_that_differ_are_named() -> None:
    (found,) = judged({"image.tag": "0.2.0"})
    assert found.fields == ("spec.template.spec.containers[trainer].image",)


def test_what_is_beside_the_pods_restarts_nothing() -> None:
    (found,) = judged({"podDisruptionBudget.maxUnavailable": 0})
    assert found == Change(Effect.NONE, "PodDisruptionBudget mnist", ("spec.maxUnavailable",))


@pytest.mark.parametrize(
    ("size", "effect"),
    [("20Gi", Effect.NONE), ("10240Mi", Effect.NONE), ("5Gi", Effect.REFUSED), ("10G", Effect.REFUSED)],
)
def test_a_claim_grows_and_never_shrinks(size: str, effect: Effect) -> None:
    (found,) = judged({"checkpoints.size": size}, {"checkpoints.size": "10Gi"})
    assert found.effect is effect


@pytest.mark.parametrize(
    "change", [{"checkpoints.storageClass": "b"}, {"checkpoints.accessMode": "ReadWriteMany"}, {"nodes": 2}]
)
def test_class_and_access_mode_of_a_claim_are_refused_with_the_way_round(change: dict[str, Any]) -> None:
    """Known failure A13."""
    found = judged(change, {"checkpoints.storageClass": "a"})[0]
    assert (found.effect, found.target) == (Effect.REFUSED, "PersistentVolumeClaim mnist-checkpoints")
    assert "checkpoints.existingClaim" in found.advice


def test_a_group_that_shrinks_to_one_pod_keeps_the_access_mode_of_its_claim() -> None:
    found = judged({"nodes": 1}, {"nodes": 2})[0]
    assert (found.effect, found.fields) == (Effect.REFUSED, ("spec.accessModes",))
    assert "set checkpoints.accessMode to that" in found.advice
    assert worst({"nodes": 1, "checkpoints.accessMode": "ReadWriteMany"}, {"nodes": 2}) is Effect.RESTART


def test_a_claim_that_leaves_the_release_stays_when_it_is_kept_and_is_a_loss_when_not() -> None:
    """Known failure A14: Helm deletes what a chart no longer renders."""
    other = {"checkpoints.existingClaim": "mine"}
    assert worst(other) is Effect.RESTART
    assert worst(other, {"checkpoints.keep": False}) is Effect.LOSS


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoints.existingClaim": "mine"},
        {"checkpoints.nfs": {"server": "nas", "path": "/checkpoints"}},
        {"checkpoints.subPath": "team"},
    ],
)
def test_a_run_whose_checkpoints_would_lie_elsewhere_is_told_that_it_begins_anew(change: dict[str, Any]) -> None:
    """Nothing is lost and nothing fails: the days that were trained are merely not found."""
    told = {one.advice for one in judged(change) if one.target == "StatefulSet mnist"}
    assert OTHER_PLACE in told
    assert OTHER_PLACE not in {one.advice for one in judged({"image.tag": "0.2.0"})}


def test_other_settings_are_no_object_that_comes_or_goes() -> None:
    assert {change.target for change in judged({"train.epochs": 5})} == {"StatefulSet mnist"}


def test_a_new_version_of_the_chart_alone_changes_nothing() -> None:
    before = render(minimal({}))
    after = copy.deepcopy(before)
    for thing in after:
        thing["metadata"]["labels"] |= {"helm.sh/chart": "rankzero-9", "app.kubernetes.io/version": "9"}
    assert effects(before, after) == []


def stateful_set(**spec: Any) -> list[Manifest]:
    """A release whose StatefulSet has other fields, as a chart of another version may have."""
    manifests = render(minimal({}))
    only(manifests, "StatefulSet")["spec"].update(spec)
    return manifests


def test_an_immutable_field_of_the_stateful_set_is_refused_and_a_mutable_one_is_not() -> None:
    before = render(minimal({}))
    assert effects(before, stateful_set(podManagementPolicy="OrderedReady")) == [
        Change(Effect.REFUSED, "StatefulSet mnist", ("spec.podManagementPolicy",), REINSTALL)
    ]
    assert effects(before, stateful_set(serviceName="other"))[0].effect is Effect.REFUSED
    assert effects(before, stateful_set(minReadySeconds=5))[0].effect is Effect.NONE


def test_a_reinstall_is_no_way_round_where_it_would_take_the_checkpoints_with_it() -> None:
    before = stateful_set()
    del only(before, "PersistentVolumeClaim")["metadata"]["annotations"]
    after = copy.deepcopy(before)
    only(after, "StatefulSet")["spec"]["serviceName"] = "other"
    assert effects(before, after)[0].advice == REINSTALL_LOSES


POD_SPEC = {"containers": [{"name": "trainer", "image": "a:1"}]}
OTHER_POD_SPEC = {"containers": [{"name": "trainer", "image": "a:1", "env": [{"name": "A", "value": "1"}]}]}


def release(kind: str, spec: dict[str, Any]) -> list[Manifest]:
    return [{"apiVersion": "v1", "kind": kind, "metadata": {"name": "mnist"}, "spec": spec}]


@pytest.mark.parametrize(
    ("kind", "before", "after", "effect"),
    [
        ("Job", {"template": {"spec": POD_SPEC}}, {"template": {"spec": OTHER_POD_SPEC}}, Effect.REFUSED),
        ("Job", {"completions": 2}, {"completions": 3}, Effect.REFUSED),
        ("Job", {"backoffLimit": 2}, {"backoffLimit": 3}, Effect.NONE),
        ("Pod", POD_SPEC, OTHER_POD_SPEC, Effect.REFUSED),
        ("Pod", POD_SPEC, {"containers": [{"name": "trainer", "image": "a:2"}]}, Effect.RESTART),
        ("TrainJob", {"trainer": {"numNodes": 2}}, {"trainer": {"numNodes": 3}}, Effect.REFUSED),
        ("TrainingRuntime", {"template": {"spec": POD_SPEC}}, {"template": {"spec": OTHER_POD_SPEC}}, Effect.IGNORED),
        ("PyTorchJob", {"nprocPerNode": "1"}, {"nprocPerNode": "2"}, Effect.IGNORED),
    ],
)
def test_each_kind_of_workload_has_rules_of_its_own(
    kind: str, before: dict[str, Any], after: dict[str, Any], effect: Effect
) -> None:
    (found,) = effects(release(kind, before), release(kind, after))
    assert found.effect is effect


def test_objects_of_a_list_are_judged_one_by_one() -> None:
    """The chart renders the TrainJob's runtime in one, so that Helm makes it first."""
    found = judged({"train.epochs": 5}, {"workload.kind": "TrainJob"})
    assert [(one.effect, one.target) for one in found] == [(Effect.IGNORED, "TrainingRuntime mnist")]


def test_another_kind_of_workload_restarts_the_group() -> None:
    found = effects(release("StatefulSet", {}), release("Job", {}))
    assert [(one.effect, one.target) for one in found] == [
        (Effect.RESTART, "Job mnist"),
        (Effect.RESTART, "StatefulSet mnist"),
    ]


def test_the_priority_of_a_native_gang_is_refused_and_its_size_is_not() -> None:
    gang = {"scheduling.gang": "native"}
    refused, restart = judged({"scheduling.priorityClassName": "high"}, gang)
    assert (refused.effect, refused.target, refused.fields) == (
        Effect.REFUSED,
        "PodGroup mnist",
        ("spec.priorityClassName",),
    )
    assert restart.effect is Effect.RESTART
    assert worst({"nodes": 3}, {**gang, "nodes": 2}) is Effect.RESTART
    assert worst({"scheduling.priorityClassName": "high"}, {"scheduling.gang": "volcano"}) is Effect.RESTART


QUEUE = {"scheduling.kueue.queue": "train"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodes": 3, "checkpoints.accessMode": "ReadWriteMany"}, "spec.replicas"),
        ({"resources.memory": "8Gi"}, "spec.template.spec.containers[trainer].resources.requests.memory"),
        ({"network.hostNetwork": True}, "spec.template.spec.containers[trainer].ports[status].hostPort"),
        ({"scheduling.nodeSelector": {"example.com/pool": "a"}}, "spec.template.spec.nodeSelector"),
        ({"scheduling.kueue.queue": "other"}, "metadata.labels.kueue.x-k8s.io/queue-name"),
        ({"scheduling.kueue.queue": ""}, "metadata.labels.kueue.x-k8s.io/queue-name"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_kueue_refuses_other_pods_than_it_has_admitted(change: dict[str, Any], field: str) -> None:
    """kubernetes-sigs/kueue#13641: its webhook takes 0 pods and back, and no other number."""
    base = {**QUEUE, "nodes": 2, "checkpoints.accessMode": "ReadWriteMany"}
    refused = judged(change, base)[0]
    assert (refused.effect, refused.target) == (Effect.REFUSED, "StatefulSet mnist")
    assert field in refused.fields
    assert refused.advice == f"Kueue holds the pods to what it has admitted: {REINSTALL}"


@pytest.mark.parametrize("change", [{"train.epochs": 5}, {"image.tag": "2"}])
def test_kueue_takes_another_image_and_other_settings(change: dict[str, Any]) -> None:
    assert worst(change, QUEUE) is Effect.RESTART


def test_a_release_without_a_queue_cannot_join_one_by_an_upgrade() -> None:
    assert worst(QUEUE) is Effect.REFUSED
    assert worst(QUEUE, {"workload.kind": "Job"}) is Effect.REFUSED


def test_another_scheduler_s_gang_is_another_object() -> None:
    found = judged({"scheduling.gang": "volcano"}, {"scheduling.gang": "native"})
    groups = [(one.effect, one.advice) for one in found if one.target == "PodGroup mnist"]
    assert sorted(groups) == [(Effect.NONE, "it is deleted"), (Effect.NONE, "it is made")]


def test_the_worst_comes_first() -> None:
    found = judged(
        {"image.tag": "2", "checkpoints.size": "5Gi", "podDisruptionBudget.maxUnavailable": 0},
        {"checkpoints.size": "10Gi"},
    )
    assert [one.effect for one in found] == [Effect.REFUSED, Effect.RESTART, Effect.NONE]


@pytest.mark.parametrize("example", upgrades.EXAMPLES, ids=lambda example: next(iter(example.change)))
def test_every_example_of_the_guide_changes_something(example: upgrades.Example) -> None:
    assert upgrades.judged(example)
