"""Filters of the role drain: which pods a drain moves, which it leaves, and which forbid it. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's image of a static pod, which only the kubelet's files can end."""

DEFAULT_GRACE = 30
"""Kubernetes' own terminationGracePeriodSeconds."""

Pod = Mapping[str, Any]


def plan(
    pods: Sequence[Pod], unmanaged: str, emptydir: str, training: Mapping[str, str], run_label: str
) -> dict[str, Any]:
    """What a drain does with each of a node's ``pods``.

    ``unmanaged`` and ``emptydir`` say whether to ``delete`` or to ``refuse`` such pods; ``training`` are the labels of
    an experiment's pods, ``run_label`` the one that holds its name. The result has ``evict`` (namespace, name, uid and
    experiment of each pod that has to go), ``refusals`` (a sentence for each pod that may not) and ``grace``, the
    longest termination grace period in seconds.
    """
    moved, refusals = [], []
    for pod in pods:
        if _stays(pod):
            continue
        labels = pod["metadata"].get("labels") or {}
        is_training = all(labels.get(label) == value for label, value in training.items())
        moved.append((pod, labels.get(run_label, "") if is_training else ""))
        if pod["metadata"].get("deletionTimestamp"):
            continue
        if unmanaged == "refuse" and _controller(pod) is None:
            refusals.append(
                f"{_name(pod)} has no controller that would make it anew. End it yourself, or set "
                "drain_unmanaged_pods to delete."
            )
        if emptydir == "refuse" and not is_training and _has_data(pod):
            refusals.append(
                f"{_name(pod)} keeps data in an emptyDir, which would be lost. Save it and end the pod yourself, or "
                "set drain_emptydir_pods to delete."
            )
    return {
        "evict": [
            {
                "namespace": pod["metadata"]["namespace"],
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
                "experiment": f"{pod['metadata']['namespace']}/{experiment}" if experiment else "",
            }
            for pod, experiment in moved
        ],
        "refusals": refusals,
        "grace": max((pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE) for pod, _ in moved), default=0),
    }


def _stays(pod: Pod) -> bool:
    """A static pod, a DaemonSet's, which tolerates the cordon and would be back at once, or one that has ended."""
    mirrored = MIRROR in (pod["metadata"].get("annotations") or {})
    return mirrored or _controller(pod) == "DaemonSet" or pod["status"].get("phase") in ("Succeeded", "Failed")


def _controller(pod: Pod) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((owner["kind"] for owner in owners if owner.get("controller")), None)


def _has_data(pod: Pod) -> bool:
    """Whether the pod has an emptyDir that is not in memory."""
    directories = (volume.get("emptyDir") for volume in pod["spec"].get("volumes") or [])
    return any(directory is not None and directory.get("medium") != "Memory" for directory in directories)


def _name(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def report(drain_plan: Mapping[str, Any], allowed: bool) -> dict[str, Any]:
    """The role's result before anything is done: may the drain begin?"""
    evict = [f"{pod['namespace']}/{pod['name']}" for pod in drain_plan["evict"]]
    experiments = sorted({pod["experiment"] for pod in drain_plan["evict"]} - {""})
    findings = [{"severity": "error", "what": what, "fix": ""} for what in drain_plan["refusals"]]
    status, why = "ok", ""
    if findings:
        status, why = "failed", " ".join(drain_plan["refusals"])
    elif evict and not allowed:
        reached = f" ({', '.join(experiments)} would be told to save)" if experiments else ""
        status = "waiting"
        why = (
            f"{len(evict)} pods would have to leave the node{reached}: {', '.join(evict)}. Run again with "
            "drain_ok=true to evict them."
        )
    return {"status": status, "why": why, "findings": findings, "asked": {}, "pods": evict, "experiments": experiments}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {"drain_plan": plan, "drain_report": report}
