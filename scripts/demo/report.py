"""What the demo found, for people and as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripts.cache import REPO
from scripts.demo.experiment import LEAST_ACCURACY, NAMESPACE, RELEASE
from scripts.demo.follow import Story
from scripts.demo.road import Ground

PATH = REPO / "build/demo-report.json"


@dataclass(frozen=True)
class Report:
    """Seconds unless named otherwise; None where it was not seen.

    ``install_to_first_step_s`` and ``kill_to_next_step_s`` begin by this machine's clock and end by that of rank 0's
    node, so on an existing cluster they are as exact as the two agree.
    """

    run_id: str
    image: str
    total_s: float
    stages: dict[str, float]
    install_to_first_step_s: float | None
    deleted_pod: str
    kill_to_next_step_s: float | None
    steps_repeated: int | None
    attempts: int
    attempts_left_out: int
    """Those too many for the run's Event: nothing else is known of them here."""
    test_accuracy: float | None
    gpus_booked: int
    gpus_released: bool
    files: str
    shortfalls: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, story: Story, stages: dict[str, float], *, installed: float, began: float, ground: Ground, run_id: str
    ) -> Report:
        """Judge what was seen."""
        attempts = story.outcome.get("attempts", [])
        left_out = sum(story.outcome.get("earlier_attempts", {}).values())
        # The attempts of this run before and after the deletion, by the numbers that the launcher gave them.
        before: dict[str, Any] = next((a for a in attempts if a["attempt"] == story.attempt_at_deletion), {})
        after: dict[str, Any] = next(
            (a for a in attempts if a["attempt"] > story.attempt_at_deletion and "first_step" in a), {}
        )
        first = next((a["first_step_time"] for a in attempts if "first_step_time" in a and not left_out), None)
        recovered = bool(story.deleted_pod and before and after)
        accuracy = story.outcome.get("result", {}).get("test_accuracy")
        report = cls(
            run_id=run_id,
            image=ground.image,
            total_s=round(time.time() - began, 1),
            stages=stages,
            install_to_first_step_s=round(first - installed, 2) if first else None,
            deleted_pod=story.deleted_pod,
            kill_to_next_step_s=round(after["first_step_time"] - story.deleted_at, 2) if recovered else None,
            steps_repeated=before["last_step"] - after["resumed_from"] if recovered and "last_step" in before else None,
            attempts=left_out + len(attempts),
            attempts_left_out=left_out,
            test_accuracy=accuracy,
            gpus_booked=story.gpus_booked,
            gpus_released=story.pods_gone and story.gpus_left == 0,
            files=_files(ground, run_id),
        )
        return cls(**{**asdict(report), "shortfalls": _shortfalls(report, story.outcome)})


def _shortfalls(report: Report, outcome: dict[str, Any]) -> list[str]:
    found = []
    if outcome.get("state") != "succeeded":
        found.append(f"the run {outcome.get('state', 'has no outcome')}: {outcome.get('reason', '')}")
    if report.attempts_left_out:
        found.append(f"of the first {report.attempts_left_out} attempts only {report.files} tells")
    elif report.install_to_first_step_s is None:
        found.append("no first step was seen")
    if not report.deleted_pod:
        found.append("the run ended before a pod could be deleted")
    elif report.kill_to_next_step_s is None:
        found.append(f"no step followed the deletion of {report.deleted_pod}")
    if report.test_accuracy is None or report.test_accuracy < LEAST_ACCURACY:
        got = "none" if report.test_accuracy is None else f"{report.test_accuracy:.2%}"
        found.append(f"test accuracy {got}, at least {LEAST_ACCURACY:.1%} expected")
    if not report.gpus_released:
        found.append("the pods, and with them their GPUs, were not released")
    return found


def _files(ground: Ground, run_id: str) -> str:
    if ground.shared is not None:
        found = sorted(ground.shared.glob(f"*/{RELEASE}/{run_id}"))
        if found:
            return str(found[0])
    return f"claim {RELEASE}-checkpoints in namespace {NAMESPACE}, folder {RELEASE}/{run_id}"


def write(report: Report) -> Path:
    """Write the JSON form and return its path."""
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    return PATH


def show(report: Report, path: Path, console: Console) -> None:
    """Print the form for people. What others said is quoted as it is: brackets in it are not markup."""
    table = Table(title=Text(f"rankzero demo: {report.run_id}"), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, seconds in report.stages.items():
        table.add_row(Text(name), f"{seconds:.1f} s")
    table.add_section()
    table.add_row("install to first step", _seconds(report.install_to_first_step_s))
    table.add_row(Text(f"{report.deleted_pod or 'pod'} deleted to next step"), _seconds(report.kill_to_next_step_s))
    table.add_row("steps repeated", "-" if report.steps_repeated is None else str(report.steps_repeated))
    table.add_row("attempts", str(report.attempts))
    table.add_row("test accuracy", "-" if report.test_accuracy is None else f"{report.test_accuracy:.2%}")
    released = "yes" if report.gpus_released else "no"
    table.add_row("GPUs released", f"{released} ({report.gpus_booked} were booked)")
    table.add_row("total", f"{report.total_s:.1f} s")
    console.print(table)
    console.print(f"files   {report.files}\nreport  {path}", markup=False)
    for shortfall in report.shortfalls:
        console.print(Text.assemble(("fell short", "red"), " ", shortfall))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
