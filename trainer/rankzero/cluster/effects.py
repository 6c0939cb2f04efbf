"""What ``helm upgrade`` or ``helm rollback`` does to a run, from the objects before and after.

Which fields the API lets nobody change stands here by kind; tests/lab asks a real API whether it agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kubernetes.utils import parse_quantity

from rankzero import contract
from rankzero.cluster import queued
from rankzero.cluster.paths import changed_paths

Document = dict[str, Any]
Pair = tuple[Document, Document]

KEEP = ("helm.sh/resource-policy", "keep")


class Effect(StrEnum):
    """From the worst to the least."""

    LOSS = "deletes checkpoints"
    REFUSED = "refused"
    IGNORED = "not taken up by running pods"
    RESTART = "restarts the group"
    NONE = "no restart"


@dataclass(frozen=True)
class Change:
    """What becomes of one object. ``fields`` are the paths that differ, ``advice`` is the way round or the caution."""

    effect: Effect
    target: str
    fields: tuple[str, ...] = ()
    advice: str = ""


REINSTALL = "`helm uninstall`, which keeps the checkpoints, then `helm install`: the run resumes from the last one"
REINSTALL_LOSES = (
    "`helm uninstall`, then `helm install`; but it would take the checkpoints with it: upgrade with "
    "checkpoints.keep=true first"
)
OTHER_CLAIM = (
    "leave the value as it was, or copy the checkpoints to a claim of your own and name it in checkpoints.existingClaim"
)
OTHER_PLACE = (
    "the run goes on from what lies at the new place, so from step 0 where nothing does: copy its folder there "
    "first to take the run along"
)
CHECKPOINTS = "[checkpoints]"
"""In a path: the pods' volume with the checkpoints, or its mount."""
STATEFUL_SET_MUTABLE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
}
JOB_MUTABLE = {"activeDeadlineSeconds", "backoffLimit", "maxFailedIndexes", "suspend", "ttlSecondsAfterFinished"}
CHARTS_VERSION = ("metadata.labels.helm.sh/chart", "metadata.labels.app.kubernetes.io/version")
"""Paths that change with every version of the chart, and change nothing."""
WORKLOADS = set(contract.WORKLOAD_KINDS)
TRAIN_JOB_MUTABLE = {"suspend", "runtimePatches"}


def effects(before: list[Document], after: list[Document]) -> list[Change]:
    """All that happens to the objects of a release, the worst first.

    Settings are left out: other ones are another ConfigMap, and the pods' template names it.
    """
    old, new = _by_name(before), _by_name(after)
    reinstall = REINSTALL if _keeps_checkpoints(before) else REINSTALL_LOSES
    found: list[Change] = []
    for key in old.keys() | new.keys():
        if key not in new:
            found.append(_removed(old[key]))
        elif key not in old:
            found.append(_added(new[key]))
        elif old[key] != new[key]:
            found += _changed(old[key], new[key], reinstall)
    order = list(Effect)
    return sorted(found, key=lambda change: (order.index(change.effect), change.target))


def _removed(thing: Document) -> Change:
    if thing["kind"] in WORKLOADS:
        return Change(Effect.RESTART, title(thing), advice="it is deleted with its pods")
    if thing["kind"] == "PersistentVolumeClaim":
        if _is_kept(thing):
            return Change(Effect.NONE, title(thing), advice="it leaves the release and stays, with all that is on it")
        return Change(Effect.LOSS, title(thing), advice="it is deleted: upgrade with checkpoints.keep=true first")
    return Change(Effect.NONE, title(thing), advice="it is deleted")


def _added(thing: Document) -> Change:
    effect = Effect.RESTART if thing["kind"] in WORKLOADS else Effect.NONE
    return Change(effect, title(thing), advice="it is made")


def _changed(old: Document, new: Document, reinstall: str) -> Iterator[Change]:
    judged = {
        "StatefulSet": _stateful_set,
        "Job": _job,
        "Pod": _pod,
        "PersistentVolumeClaim": _claim,
        "PodGroup": _pod_group,
        "PyTorchJob": _operated,
        "RoleBinding": _role_binding,
        "TrainingRuntime": _operated,
        "TrainJob": _train_job,
    }.get(old["kind"], _in_place)
    by_effect: dict[tuple[Effect, str], list[str]] = {}
    for path in changed_paths(old, new):
        if path in CHARTS_VERSION:
            continue
        is_kept = queued.keeps(path, new)
        verdict = (
            (Effect.REFUSED, f"Kueue holds the pods to what it has admitted: {reinstall}")
            if is_kept
            else judged(path, (old, new), reinstall)
        )
        by_effect.setdefault(verdict, []).append(path)
    for (effect, advice), fields in by_effect.items():
        yield Change(effect, title(old), tuple(fields), advice)


Verdict = tuple[Effect, str]
IN_PLACE: Verdict = (Effect.NONE, "")


def _stateful_set(path: str, _: Pair, reinstall: str) -> Verdict:
    if not path.startswith("spec."):
        return IN_PLACE
    if (part := _part(path)) in {"template", "replicas"}:
        return Effect.RESTART, OTHER_PLACE if CHECKPOINTS in path else ""
    return IN_PLACE if part in STATEFUL_SET_MUTABLE else (Effect.REFUSED, reinstall)


def _job(path: str, _: Pair, reinstall: str) -> Verdict:
    """Its pods never change: Kubernetes has no rolling update for Jobs."""
    if not path.startswith("spec.") or _part(path) in JOB_MUTABLE:
        return IN_PLACE
    return Effect.REFUSED, reinstall


def _pod(path: str, _: Pair, reinstall: str) -> Verdict:
    if not path.startswith("spec."):
        return IN_PLACE
    if path.endswith("].image"):
        return Effect.RESTART, ""
    return IN_PLACE if _part(path) == "activeDeadlineSeconds" else (Effect.REFUSED, reinstall)


def _operated(path: str, _: Pair, reinstall: str) -> Verdict:
    """Pods are made from it once; at best those that replace lost ones follow it, which then differ from the others."""
    return (Effect.IGNORED, reinstall) if path.startswith("spec.") else IN_PLACE


def _train_job(path: str, _: Pair, reinstall: str) -> Verdict:
    is_free = not path.startswith("spec.") or _part(path) in TRAIN_JOB_MUTABLE
    return IN_PLACE if is_free else (Effect.REFUSED, reinstall)


def _claim(path: str, pair: Pair, _: str) -> Verdict:
    if not path.startswith("spec."):
        return IN_PLACE
    if path != "spec.resources.requests.storage":
        if path.startswith("spec.accessModes") and pair[0]["spec"]["accessModes"] == ["ReadWriteMany"]:
            return Effect.REFUSED, "the claim stays ReadWriteMany: set checkpoints.accessMode to that"
        return Effect.REFUSED, f"class and access mode of a claim are fixed: {OTHER_CLAIM}"
    asked = [claim["spec"]["resources"]["requests"]["storage"] for claim in pair]
    old, new = (parse_quantity(size) for size in asked)  # type: ignore[no-untyped-call]
    if new > old:
        return Effect.NONE, "the claim grows, if its storage class has allowVolumeExpansion"
    return (Effect.REFUSED, f"a claim only grows: {OTHER_CLAIM}") if new < old else IN_PLACE


def _pod_group(path: str, pair: Pair, reinstall: str) -> Verdict:
    """Kubernetes' own keeps its priority; those of other schedulers are theirs to judge."""
    is_native = pair[0]["apiVersion"].startswith("scheduling.k8s.io/")
    return (Effect.REFUSED, reinstall) if is_native and path == "spec.priorityClassName" else IN_PLACE


def _role_binding(path: str, _: Pair, reinstall: str) -> Verdict:
    return (Effect.REFUSED, reinstall) if path.startswith("roleRef.") else IN_PLACE


def _in_place(_path: str, _pair: Pair, _reinstall: str) -> Verdict:
    return IN_PLACE


def title(thing: Document) -> str:
    """``StatefulSet mnist``."""
    return f"{thing['kind']} {thing['metadata']['name']}"


def _part(path: str) -> str:
    """The field right below spec."""
    return path.split(".")[1].partition("[")[0]


def _by_name(objects: list[Document]) -> Mapping[tuple[str, str, str], Document]:
    """By API group too: each scheduler has a PodGroup of its own."""
    single = (item for one in objects for item in (one["items"] if one["kind"] == "List" else [one]))
    return {
        (one["apiVersion"].rpartition("/")[0], one["kind"], one["metadata"]["name"]): one
        for one in single
        if not is_settings(one)
    }


def is_settings(thing: Document) -> bool:
    """Whether it is the ConfigMap that the launcher reads."""
    return contract.CONFIG_FILE in thing.get("data", {})


def _is_kept(claim: Document) -> bool:
    key, value = KEEP
    return bool(claim["metadata"].get("annotations", {}).get(key) == value)


def _keeps_checkpoints(objects: list[Document]) -> bool:
    """Whether an uninstall leaves the claims: they are kept, or not the release's own."""
    return all(_is_kept(one) for one in objects if one["kind"] == "PersistentVolumeClaim")
