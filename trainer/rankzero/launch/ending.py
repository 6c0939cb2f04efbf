"""The end of a run as the cluster sees it: an Event that says how, and a workload that frees what it held.

A StatefulSet never finishes by itself (an exit would only make the kubelet start the container again), so node rank 0
scales it to 0. Where it has no right to, the pods are parked: they stay, without a worker, and say what to type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rankzero import contract
from rankzero.errors import ClusterError, ForbiddenError
from rankzero.launch.annotation import annotation
from rankzero.launch.identity import Identity
from rankzero.launch.kubernetes_api import InCluster

RETRY_EVERY = 10.0
"""Seconds between two tries at an API that cannot answer now."""


class Ending:
    """Used by node rank 0 after the last worker. ``say`` prints a line for a person.

    ``connect`` opens the API of a namespace as :class:`InCluster` does.
    """

    def __init__(
        self, identity: Identity, say: Callable[[str], None], connect: Callable[[str], InCluster] = InCluster
    ) -> None:
        self.identity = identity
        self.parked = ""
        """What a person has to do so that the pods go; empty while the launcher can do it."""
        self._say = say
        self._connect = connect
        self._kind, _, self._name = identity.workload.partition("/")

    @property
    def waits_for_deletion(self) -> bool:
        """Whether the pods stay until somebody removes them; those of other workloads end by their exit."""
        return self._kind == "StatefulSet"

    async def post_event(self, document: dict[str, Any]) -> None:
        """Record ``document``, that of outcome.json, as an Event on the workload. Failures are said, not raised."""
        if not self._name:
            return
        good = document["state"] == "succeeded"
        try:
            await asyncio.to_thread(
                lambda: self._connect(self.identity.namespace).post_event(
                    self._kind,
                    self._name,
                    reason=contract.EVENT_SUCCEEDED if good else contract.EVENT_FAILED,
                    message=document["reason"],
                    warning=not good,
                    outcome=annotation(document),
                )
            )
        except ClusterError as error:
            self._say(f"could not record the Event: {error}")

    async def free(self, is_owner: Callable[[], Awaitable[bool]], stop_asked: asyncio.Event) -> None:
        """Scale the StatefulSet to 0, or park it where that is forbidden.

        Goes on trying until ``stop_asked`` is set or another pod is node rank 0 (``is_owner`` is False).
        """
        while not stop_asked.is_set() and await is_owner():
            try:
                await asyncio.to_thread(lambda: self._connect(self.identity.namespace).scale_to_zero(self._name))
            except ForbiddenError as error:
                self._park(error)
                return
            except ClusterError as error:
                self._say(f"cannot scale StatefulSet {self._name} to 0, so its GPUs stay booked: {error}")
                await _wait(stop_asked, RETRY_EVERY)
            else:
                self._say(f"scaled StatefulSet {self._name} to 0: its GPUs are free, its checkpoints stay")
                return

    def _park(self, error: ForbiddenError) -> None:
        namespace = f"-n {self.identity.namespace} " if self.identity.namespace else ""
        self.parked = (
            "the run has ended, its pods stay and their GPUs stay booked until somebody types "
            f"`kubectl {namespace}scale statefulset {self._name} --replicas=0` "
            f"or `helm {namespace}uninstall {self.identity.run_name}`"
        )
        self._say(f"{self.parked} ({error.message})")


async def _wait(event: asyncio.Event, timeout: float) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting}, timeout=timeout)
    waiting.cancel()
