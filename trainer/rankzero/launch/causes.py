"""Why an attempt ended: what was seen at the coordinator, and which of it came first."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rankzero.launch.protocol import WorkerFailed

WORKER = "worker"
"""The script failed on some rank."""
CONTAINER = "container"
"""A container ended by itself (out of memory, a crash of the launcher): the same pod came back with a new boot."""
POD = "pod"
"""A pod was lost or replaced: its surroundings, not the script."""
STOPPED = "stopped"
"""A pod is being stopped from outside: eviction, drain, upgrade, deletion."""
STALLED = "stalled"
"""No rank made progress."""

HEAD_START = 3.0
"""Seconds by which the loss of a pod, or the end of a worker, may be noticed after the workers that lost their peer
through it."""
LOST_A_PEER = re.compile(
    "closed by (remote )?peer|reset by peer|Broken pipe|Connection was likely closed"  # gloo, NCCL, the store
    "|ncclRemoteError|remote process exit|communicator was aborted",
    re.IGNORECASE,
)
"""What a worker's error says when it failed because another had."""


@dataclass(frozen=True)
class Cause:
    """One thing that went wrong. ``at`` is the coordinator's monotonic time of the last good sign before it.

    ``node_rank`` is -1 where it concerns no pod in particular, ``rank`` where it concerns no rank.
    """

    kind: str
    reason: str
    node_rank: int = -1
    failure: WorkerFailed | None = None
    rank: int = -1
    at: float = field(default_factory=time.monotonic)

    def record(self) -> dict[str, Any]:
        """As JSON; monotonic time means nothing outside this process and is left out."""
        document = dataclasses.asdict(self)
        del document["at"]
        return document

    def with_more(self, said: Iterable[str]) -> Cause:
        """The cause with what became known afterwards."""
        return dataclasses.replace(self, reason="; ".join([self.reason, *said]))

    @property
    def is_echo(self) -> bool:
        """A worker that failed because it lost a peer. The peer closes its connections before it has ended."""
        return self.failure is not None and bool(LOST_A_PEER.search(self.failure.error))


def first(causes: list[Cause]) -> Cause:
    """The cause that explains the others.

    Order is that of arrival at the coordinator, since the clocks of nodes differ. A lost pod makes its peers'
    workers fail at once, and is itself noticed later; so its last sign of life counts, with a head start. A worker
    that is still printing its traceback has closed its connections already; so it has one before its peers too.
    """
    return min(causes, key=lambda cause: cause.at - _head_start(cause))


def _head_start(cause: Cause) -> float:
    if cause.is_echo:
        return -HEAD_START
    return 0 if cause.kind == WORKER else HEAD_START
