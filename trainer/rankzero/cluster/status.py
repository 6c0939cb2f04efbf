"""``rankzero status``: one run in a few lines, from rank 0 while it lives and from its Event afterwards.

Events expire, by default after an hour. Then only the checkpoint volume knows how the run ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

from kubernetes import config

from rankzero import contract
from rankzero.cluster.api import connect
from rankzero.cluster.run import PodView, Run
from rankzero.cluster.workload import ENDS, Workload
from rankzero.errors import ClusterError
from rankzero.launch.ledger import sentence
from rankzero.launch.pace import WORTH_TELLING

ENDED = "ended"
"""There is nothing left to run, and no Event that says why."""


def show(name: str, namespace: str, *, as_json: bool) -> int:
    """Print the state of release ``name``; 0 unless the run has failed (then 1).

    Raises :class:`ClusterError` where the API does not answer or there is no such release.
    """
    api = connect()
    run = Run(api, namespace or current_namespace(), name)
    document = collect(run)
    sys.stdout.write((json.dumps(document) if as_json else "\n".join(lines(document))) + "\n")
    return 1 if document["state"] == "failed" else 0


def current_namespace() -> str:
    """The namespace of the kubeconfig's current context."""
    _, active = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    return str(active["context"].get("namespace") or "default")


def collect(run: Run) -> dict[str, Any]:
    """Everything that ``status`` shows. Raises :class:`ClusterError` where there is no such release."""
    workload = run.workload()
    if workload is None:
        raise ClusterError(
            f"there is no run {run.name} in namespace {run.namespace}", hint="see `helm list --all-namespaces`"
        )
    pods = run.pods()
    page = run.status(pods) or {}
    group = page.get("group") or {}
    outcome = page.get("outcome")  # parked pods tell it for longer than an Event lives
    if outcome is not None and outcome["run_id"] != workload.run_id:
        outcome = None
    if outcome is None and (workload.replicas == 0 or not group):
        outcome = run.outcome(workload.run_id, since=_started(workload, pods))
    return {
        "run": run.name,
        "run_id": workload.run_id,
        "namespace": run.namespace,
        "workload": workload.kind,
        "state": (outcome or {}).get("state") or workload.ended or _present(group, workload),
        "why": "" if outcome else workload.why,
        "replicas": workload.replicas,
        "pods": [vars(pod) for pod in pods],
        "obstacles": [] if outcome else _obstacles(run, workload, pods),
        "waiting_for": page.get("waiting_for") or "",
        "group": group,
        "outcome": outcome,
    }


def _obstacles(run: Run, workload: Workload, pods: list[PodView]) -> list[str]:
    """What keeps pods from coming to be or from finding a node, where only Events of other objects say it."""
    found = [run.refused_pods()] if sum(not pod.has_ended for pod in pods) < workload.replicas else []
    claims = {claim for pod in pods if not pod.node and "olume" in pod.trouble for claim in pod.claims}
    volumes = {claim: run.unmade_volume(claim) for claim in sorted(claims)}
    found += [f"claim {claim}: {why}" for claim, why in volumes.items() if why]
    return [one for one in found if one]


def _started(workload: Workload, pods: list[PodView]) -> float:
    """Since when the present start of the run can have ended: rank 0's pod tells how, so not before it was there."""
    return max([workload.created, *(pod.created for pod in pods if pod.rank0)])


def _present(group: dict[str, Any], workload: Workload) -> str:
    """State of a run whose end nobody tells of."""
    return str(group.get("state") or ("waiting" if workload.replicas else ENDED))


def lines(document: dict[str, Any]) -> list[str]:
    """The document for a person."""
    said = [f"{document['namespace']}/{document['run']}: {document['state']}"]
    group, outcome = document["group"], document["outcome"]
    if outcome:
        said.append(f"  {outcome['reason']}")
        said += [f"  {key}: {_figure(value, '.4g')}" for key, value in outcome.get("result", {}).items()]
    elif document["state"] == ENDED:
        said.append(f"  how it ended is no longer known here; {_on_the_volume(document)}")
    elif document["state"] in ENDS.values():
        why = f": {document['why']}" if document["why"] else ""
        said.append(f"  so says its {document['workload']}{why}; {_on_the_volume(document)}")
    progress = group.get("progress") or {}
    if "step" in progress:
        age = time.time() - progress["time"]
        loss = _figure(progress["loss"], ".4f")
        said.append(f"  step {progress['step']} of {progress['total_steps']}, loss {loss}, {age:.0f} s ago")
    said += _phases(group.get("ranks") or [])
    slowest = group.get("slowest")
    if slowest and slowest["lost"] >= WORTH_TELLING:
        said.append(f"  {slowest['said']}")
    if spent := (outcome or group).get("time_s"):
        said.append(f"  {sentence(spent)}")
    if group.get("absent") and not outcome:
        said.append(f"  waiting for node rank {', '.join(map(str, group['absent']))}")
    elif document["waiting_for"]:
        said.append(f"  {document['waiting_for']}")
    for pod in document["pods"]:
        trouble = pod["trouble"].removesuffix(f": {outcome['reason']}" if outcome else "")  # which stands above
        said.append(f"  {pod['name']}  {pod['phase']}  {pod['node'] or 'no node yet'}  {trouble}".rstrip())
    said += [f"  {one}" for one in document["obstacles"]]
    if earlier := (outcome or {}).get("earlier_attempts"):
        causes = ", ".join(f"{count} {kind}" for kind, count in earlier.items())
        said.append(f"  {sum(earlier.values())} earlier attempts ({causes}); {_on_the_volume(document)}")
    for attempt in (outcome or group).get("attempts", []):
        said.append(f"  attempt {attempt['attempt']}: {_attempt(attempt)}")
    return said


def _figure(value: float | None, form: str) -> str:
    """null stands for what is no number; a whole one is shown whole."""
    if value is None:
        return "nan"
    return str(value) if isinstance(value, int) else format(value, form)


def _on_the_volume(document: dict[str, Any]) -> str:
    return f"see {document['run']}/{document['run_id']}/{contract.OUTCOME_FILE} on the checkpoint volume"


def _phases(ranks: list[dict[str, Any]]) -> list[str]:
    """What the ranks do, where they do not all train; and the one that has not moved for longest."""
    phases = Counter(rank["phase"] for rank in ranks)
    if not phases or set(phases) == {"training"}:
        return []
    slowest = max(ranks, key=lambda rank: float(rank["still"]))
    parts = ", ".join(f"{count} in {phase}" for phase, count in phases.most_common())
    return [f"  ranks: {parts}; rank {slowest['rank']} in {slowest['phase']} for {slowest['still']:.0f} s"]


def _attempt(attempt: dict[str, Any]) -> str:
    steps = f"steps {attempt['first_step']} to {attempt['last_step']}" if "first_step" in attempt else "no step"
    if "ended" not in attempt:
        return f"{steps}, running"
    return f"{steps}, ended: {attempt['cause'] or 'every worker ended with status 0'}"
