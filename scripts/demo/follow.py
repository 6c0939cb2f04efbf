"""Watching a run until it has ended, and deleting one of its pods on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rankzero.cluster.run import PodView, Run
from rankzero.errors import ClusterError, UnreachableError
from scripts.demo.experiment import DELETE_AT, UNINSTALL

POLL = 0.25
FIRST_STEP_WITHIN = 900.0
"""The image may have to be pulled first."""
SILENT_FOR = 300.0
RELEASED_WITHIN = 60.0
API_SILENT_FOR = 60.0
"""Longest silence of the Kubernetes API that is waited out."""
PLAIN_LINE_EVERY = 5.0
HOPELESS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff")
HOPELESS_AFTER = 90.0
T = TypeVar("T")


@dataclass
class Story:
    """What was seen. Times are seconds since the epoch by this machine's clock."""

    deleted_pod: str = ""
    deleted_at: float = 0.0
    attempt_at_deletion: int = 0
    gpus_booked: int = 0
    gpus_left: int = 0
    pods_gone: bool = False
    outcome: dict[str, Any] = field(default_factory=dict)


def follow(run: Run, run_id: str, console: Console) -> Story:
    """Follow run ``run_id`` from its installation to its end; deletes the last pod at ``DELETE_AT`` of its steps.

    Raises :class:`ClusterError` where it does not start, falls silent, or its pods cannot run, and where the API
    does not answer for ``API_SILENT_FOR`` seconds.
    """
    story = Story()
    with _Display(console) as display:
        seen = Patient(run, display.say)
        story.outcome = _until_ended(seen, run_id, story, display)
        story.pods_gone = seen.until_released(RELEASED_WITHIN)
        story.gpus_left = sum(pod.gpus for pod in seen.pods())
    return story


class Patient:
    """Asks a run what :class:`Run` does, and waits out short silences of the API, saying so."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self.run = run
        self._say = say

    def pods(self) -> list[PodView]:
        return self._answer(self.run.pods)

    def status(self) -> dict[str, Any] | None:
        return self._answer(self.run.status)

    def outcome(self, run_id: str) -> dict[str, Any] | None:
        return self._answer(lambda: self.run.outcome(run_id))

    def replicas(self) -> int:
        workload = self._answer(self.run.workload)
        return workload.replicas if workload else 0

    def delete_pod(self, name: str) -> None:
        self._answer(lambda: self.run.delete_pod(name))

    def until_released(self, within: float) -> bool:
        """True when the workload is at 0 replicas and no pod is left; False after ``within`` seconds."""
        deadline = time.monotonic() + within
        while self.replicas() != 0 or self.pods():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def _answer(self, ask: Callable[[], T]) -> T:
        began = time.monotonic()
        said = False
        while True:
            try:
                return ask()
            except UnreachableError as error:
                if time.monotonic() - began > API_SILENT_FOR:
                    raise
                if not said:
                    self._say(f"{error.message}; asking again for {API_SILENT_FOR:.0f} s")
                    said = True
                time.sleep(POLL)


def _until_ended(run: Patient, run_id: str, story: Story, display: _Display) -> dict[str, Any]:
    last_news, last_step = time.monotonic(), 0
    trouble_since: float | None = None
    while True:
        status = run.status()
        group = (status or {}).get("group", {})
        progress = group.get("progress", {}) if group.get("attempt") else {}
        step, total = progress.get("step", 0), progress.get("total_steps", 0)
        display.show(group, progress)
        if step != last_step:
            last_news, last_step = time.monotonic(), step
        if not story.deleted_pod and total and step >= DELETE_AT * total:
            _delete_last_pod(run, story, group["attempt"], step, display)
        starting = status is None or not step
        if starting:
            trouble_since = _check_trouble(run.pods(), trouble_since)
        if starting or group.get("state") in {"succeeded", "failed", "stopped"}:
            outcome = run.outcome(run_id)
            if outcome is not None:
                return outcome
        silence = time.monotonic() - last_news
        if silence > (SILENT_FOR if last_step else FIRST_STEP_WITHIN):
            raise ClusterError(f"no step for {silence:.0f} s; {_describe(run.pods())}", hint=_look(run.run))
        time.sleep(POLL)


def _delete_last_pod(run: Patient, story: Story, attempt: int, step: int, display: _Display) -> None:
    pods = run.pods()
    victim = pods[-1]
    story.gpus_booked = sum(pod.gpus for pod in pods)
    story.deleted_pod, story.attempt_at_deletion = victim.name, attempt
    story.deleted_at = time.time()
    run.delete_pod(victim.name)
    display.say(f"step {step}: pod {victim.name} on {victim.node} deleted")


def _check_trouble(pods: list[PodView], since: float | None) -> float | None:
    hopeless = [pod for pod in pods if pod.trouble.startswith(HOPELESS)]
    if not hopeless:
        return None
    since = since or time.monotonic()
    if time.monotonic() - since > HOPELESS_AFTER:
        raise ClusterError(f"the pods cannot run: {_describe(hopeless)}", hint=f"clear it away with `{UNINSTALL}`")
    return since


def _describe(pods: list[PodView]) -> str:
    if not pods:
        return "there are no pods"
    return "; ".join(f"{pod.name} {pod.phase}{f' ({pod.trouble})' if pod.trouble else ''}" for pod in pods)


def _look(run: Run) -> str:
    return f"look with `kubectl --namespace {run.namespace} describe pods` and `kubectl logs {run.name}-0`"


class _Display:
    """A live bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("waiting", total=None, note="")
        self._printed = 0.0
        self._said = ""

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """A line that stays. It may quote others, so nothing in it is markup."""
        self.console.print(f"  {text}", markup=False)

    def show(self, group: dict[str, Any], progress: dict[str, Any]) -> None:
        """Show where the run is now."""
        if not group:  # the page does not answer now: rank 0 is starting, or has gone
            return
        where = self._where(group)
        if where != self._said:
            self._said = where
            self.say(where)
        if "step" not in progress:
            return
        note = "loss nan" if progress["loss"] is None else f"loss {progress['loss']:.3f}"
        self._bar.update(
            self._task, description=where, completed=progress["step"], total=progress["total_steps"], note=note
        )
        if not self.console.is_terminal and time.monotonic() - self._printed > PLAIN_LINE_EVERY:
            self._printed = time.monotonic()
            self.say(f"step {progress['step']}/{progress['total_steps']}  {note}")

    @staticmethod
    def _where(group: dict[str, Any]) -> str:
        if group["state"] == "waiting":
            return f"waiting for node rank {', '.join(map(str, group['absent']))}" if group["absent"] else "complete"
        return f"attempt {group['attempt']} {group['state']}"
