"""What /status shows: this pod, and on rank 0 the group. Read from the status page's own thread."""

from __future__ import annotations

from typing import Any

from rankzero.launch import ledger
from rankzero.launch.coordinator import Coordinator
from rankzero.launch.identity import Identity
from rankzero.launch.member import Member
from rankzero.launch.pace import pace


def snapshot(identity: Identity, member: Member, coordinator: Coordinator | None) -> dict[str, Any]:
    """The document. Times are seconds, points in time seconds since the epoch."""
    document: dict[str, Any] = {
        "run": identity.run_name,
        "run_id": identity.run_id,
        "pod": identity.pod_name,
        "node_rank": identity.node_rank,
        "state": member.state,
        "joined": member.joined,
        "ready": member.ready,
        "waiting_for": member.waiting_for,
        "last_failure": member.last_failure.summary if member.last_failure else None,
        "spare_memory": member.warmth.memory if member.warmth else 0,
    }
    if coordinator is not None:
        document["group"] = _group(coordinator)
    return document


def _group(coordinator: Coordinator) -> dict[str, Any]:
    launch, records, progress = coordinator.launch, coordinator.records, coordinator.observer.progress
    spent = records.ledger(progress)
    beats = coordinator.observer.beats
    slowest = pace(beats)
    return {
        "state": coordinator.state,
        "attempt": coordinator.attempt,
        "nodes": launch.nodes,
        "world_size": launch.nodes * launch.procs_per_node,
        "absent": coordinator.roster.absent(),
        "progress": progress,
        "ranks": [beat.record() for beat in beats],
        "slowest": slowest.record() if slowest else None,
        "attempts": records.summary(progress),
        "time_s": spent,
        "lost_s": records.lost_by_cause(progress),
        "goodput": round(ledger.goodput(spent), 4),
    }
