"""Why an attempt ended: what was seen at the coordinator, and which of it came first."""

from __future__ import annotations

import dataclasses
import time
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

HEAD_START = 3.0
"""Seconds by which the loss of a pod may be noticed after the workers that lost their peer through it."""


@dataclass(frozen=True)
class Cause:
    """One thing that went wrong. ``at`` is the coordinator's monotonic time of the last good sign before it.

    ``node_rank`` is -1 where it concerns no pod in particular.
    """

    kind: str
    reason: str
    node_rank: int = -1
    failure: WorkerFailed | None = None
    at: float = field(default_factory=time.monotonic)

    def record(self) -> dict[str, Any]:
        """As JSON; monotonic time means nothing outside this process and is left out."""
        document = dataclasses.asdict(self)
        del document["at"]
        return document


def first(causes: list[Cause]) -> Cause:
    """The cause that explains the others.

    Order is that of arrival at the coordinator, since the clocks of nodes differ. A lost pod makes its peers'
    workers fail at once, and is itself noticed later; so its last sign of life counts, with a head start.
    """
    return min(causes, key=lambda cause: cause.at - (0 if cause.kind == WORKER else HEAD_START))
