"""The run's records in its state directory. Only the launcher of node rank 0 writes here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import rankzero
from rankzero import contract
from rankzero.files import read_json, write_json


class Records:
    """Attempts and the outcome of one run. Times are seconds since the epoch; I/O errors pass through."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir

    def write_run(self, description: dict[str, Any]) -> None:
        """Write run.json unless an earlier start of the launcher has."""
        path = self.state_dir / contract.RUN_FILE
        if not path.exists():
            write_json(path, {**description, "version": rankzero.__version__, "created": time.time()})

    def attempts(self) -> list[dict[str, Any]]:
        """All attempt records, oldest first."""
        folder = self.state_dir / contract.ATTEMPTS_DIR
        return [record for path in sorted(folder.glob("[0-9]*.json")) if (record := read_json(path)) is not None]

    def open_attempt(self, nodes: list[dict[str, Any]]) -> int:
        """Write the record of a new attempt and return its number; numbers go on across launchers."""
        previous = self.attempts()
        number = 1 + (previous[-1]["attempt"] if previous else 0)
        self._write(number, {"attempt": number, "started": time.time(), "nodes": nodes})
        return number

    def close_attempt(self, attempt: int, *, cause: dict[str, Any] | None) -> dict[str, Any]:
        """Add the end of an attempt (``cause`` None: every worker ended with status 0) and return its record."""
        record = self.attempt(attempt)
        record = {**record, **self.steps_of(attempt), "ended": time.time(), "cause": cause}
        self._write(attempt, record)
        return record

    def attempt(self, attempt: int) -> dict[str, Any]:
        """The record of one attempt; empty where there is none."""
        return read_json(self.state_dir / contract.attempt_file(attempt)) or {}

    def steps_of(self, attempt: int) -> dict[str, Any]:
        """First and last step of an attempt as rank 0 reported them; empty before its first report."""
        progress = self.progress()
        if progress.get("attempt") != attempt:
            return {}
        keys = ("resumed_from", "first_step", "first_step_time", "step", "time")
        return {("last_" + key if key in {"step", "time"} else key): progress[key] for key in keys if key in progress}

    def progress(self) -> dict[str, Any]:
        """The last heartbeat of rank 0; empty before the first."""
        return read_json(self.state_dir / contract.progress_file(0)) or {}

    def result(self) -> dict[str, Any]:
        """What the training script reported as its result."""
        return read_json(self.state_dir / contract.RESULT_FILE) or {}

    def outcome(self) -> dict[str, Any] | None:
        """How the run ended; None while it has not."""
        outcome: dict[str, Any] | None = read_json(self.state_dir / contract.OUTCOME_FILE)
        return outcome

    def write_outcome(self, state: str, reason: str, exit_code: int) -> dict[str, Any]:
        """Write outcome.json and return it."""
        outcome = {
            "state": state,
            "reason": reason,
            "exit_code": exit_code,
            "ended": time.time(),
            "result": self.result() if state == "succeeded" else {},
            "attempts": self.summary(),
        }
        write_json(self.state_dir / contract.OUTCOME_FILE, outcome)
        return outcome

    def set_outcome_aside(self) -> None:
        """Keep an earlier outcome under another name: the run goes on."""
        path = self.state_dir / contract.OUTCOME_FILE
        path.replace(path.with_name(f"outcome-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.json"))

    def summary(self) -> list[dict[str, Any]]:
        """All attempts without the output of their workers; the open one with its steps so far."""
        records = self.attempts()
        return [
            _short(record if "ended" in record else {**record, **self.steps_of(record["attempt"])})
            for record in records
        ]

    def _write(self, attempt: int, record: dict[str, Any]) -> None:
        write_json(self.state_dir / contract.attempt_file(attempt), record)


def _short(record: dict[str, Any]) -> dict[str, Any]:
    """An attempt's record without the output of its workers."""
    cause = record.get("cause")
    return {
        **{key: value for key, value in record.items() if key not in {"nodes", "cause"}},
        "cause": cause["reason"] if cause else None,
    }
