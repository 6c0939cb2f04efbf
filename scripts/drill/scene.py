"""What a drill's disturbance works with: the pods of the run, its steps, and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankzero.errors import ClusterError, RankzeroError
from scripts.demo.follow import Patient
from scripts.drill.release import NAME, RUN_ID, Release
from scripts.stages import Stages

POLL = 0.1
PODS_EVERY = 0.5
STEP_WITHIN = 120.0


@dataclass(frozen=True)
class Seen:
    """A pod as the API had it; ``restarts`` counts how often its container was started again."""

    uid: str
    restarts: int


class Scene:
    """One run under a drill. Times are seconds since the epoch by this machine's clock."""

    def __init__(self, release: Release, run: Patient, stages: Stages) -> None:
        self.release = release
        self.run = run
        self.detail = stages.detail
        """Shows where things are now."""
        self._say = stages.say
        self.struck = 0.0
        self.other_results: list[dict[str, float]] = []
        """Of further runs beside this one."""
        self.over = 0.0
        """When the disturbance had ended, for those that last."""
        self.before: dict[int, Seen] = {}
        """The pods by node rank when the event came."""
        self.after: dict[int, Seen] = {}
        """And when the run was last seen at work."""
        self.complaints: list[str] = []
        """What could not be put right."""
        self._undo: list[Callable[[], object]] = []
        self._noted = 0.0

    def later(self, undo: Callable[[], object]) -> Callable[[], None]:
        """Have ``undo`` called in the end at the latest; returns what calls it now, and then not again."""
        self._undo.append(undo)

        def now() -> None:
            self._undo.remove(undo)
            undo()

        return now

    def undo_all(self) -> None:
        """Call what is left, the last one first. What fails is said and kept in ``complaints``.

        It neither keeps the others from being called nor hides the error that brought the drill here.
        """
        while self._undo:
            try:
                self._undo.pop()()
            except RankzeroError as error:
                self.complaints.append(f"it could not be put right: {error}")
                self._say(self.complaints[-1])

    def note_pods(self) -> None:
        """Remember which pods the run has now; called while it is at work, and not more than twice a second."""
        if time.monotonic() - self._noted < PODS_EVERY:
            return
        self._noted = time.monotonic()
        ranks = {int(pod.name.rpartition("-")[2]): Seen(pod.uid, pod.restarts) for pod in self.run.pods()}
        self.before, self.after = self.before or ranks, ranks

    def strike_now(self) -> None:
        """The clock of the drill starts here."""
        self.struck = time.time()

    def over_now(self) -> None:
        """What lasted has ended; where the run cannot go on before, the clock starts here."""
        self.over = time.time()

    @staticmethod
    def pod(rank: int) -> str:
        """Name of the pod of a node rank."""
        return f"{NAME}-{rank}"

    def node_of(self, rank: int) -> str:
        """Name of the node that a pod runs on. Raises :class:`ClusterError` where it runs on none."""
        for pod in self.run.pods():
            if pod.name == self.pod(rank) and pod.node:
                return pod.node
        raise ClusterError(
            f"{self.pod(rank)} runs on no node",
            hint=f"look with `kubectl --namespace {self.release.namespace} get pods -o wide`",
        )

    def group(self) -> dict[str, Any]:
        """What rank 0 says of the group now; empty while it does not answer."""
        found: dict[str, Any] = (self.run.status() or {}).get("group", {})
        return found

    def wait_for_step(self, step: int, *, within: float = STEP_WITHIN) -> None:
        """Wait until the run has made ``step`` steps. Raises :class:`ClusterError` where it does not come so far."""

        def is_there() -> bool:
            group = self.group()
            if not group and (outcome := self.run.outcome(RUN_ID)) is not None:
                raise ClusterError(f"the run has {outcome['state']} before step {step}: {outcome['reason']}")
            return group.get("state") == "running" and group.get("progress", {}).get("step", 0) >= step

        self.wait_until(is_there, what=f"step {step}", within=within)

    def wait_until(self, is_so: Callable[[], bool], *, what: str, within: float = STEP_WITHIN) -> None:
        """Ask again and again. Raises :class:`ClusterError` after ``within`` seconds."""
        deadline = time.monotonic() + within
        while not is_so():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"waited {within:g} s for {what}",
                    hint=f"look with `kubectl --namespace {self.release.namespace} logs {self.pod(0)}`",
                )
            time.sleep(POLL)
