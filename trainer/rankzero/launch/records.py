"""The run's records in its state directory. Only the launcher of node rank 0 writes here.

Attempts are kept in memory and written through: a volume that is full or away must not decide what the group
does. Methods that touch the volume say so and may raise OSError.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import rankzero
from rankzero import contract
from rankzero.files import read_json, write_json
from rankzero.launch import ledger
from rankzero.launch.causes import CONTAINER, POD, Cause

OWNER_FILE = "rank0.json"
"""Who wrote last: a rank 0 that was replaced finds another uid here and ends nothing any more."""


class Records:
    """Attempts and the outcome of one run. Times are seconds since the epoch."""

    def __init__(self, state_dir: Path, run: str, run_id: str, pod_uid: str) -> None:
        self.state_dir = state_dir
        self.run = run
        self.run_id = run_id
        self.pod_uid = pod_uid
        self.attempts: list[dict[str, Any]] = []
        """All attempt records, oldest first; the last one has no ``ended`` while it runs."""
        self.created = time.time()
        """When the run began, on whichever pod."""
        self._unsaved: set[int] = set()
        self._saving = threading.Lock()

    # --- The volume -----------------------------------------------------------------------------------------

    def load(self, description: dict[str, Any]) -> None:
        """Take the run over from an earlier rank 0, or begin it. Reads and writes the volume."""
        folder = self.state_dir / contract.ATTEMPTS_DIR
        # By number: their names have four digits only up to attempt 9999.
        paths = sorted(
            (path for path in folder.glob("*.json") if path.stem.isdecimal()), key=lambda path: int(path.stem)
        )
        found = [read_json(path, damaged_is_absent=True) for path in paths]
        self.attempts = [record for record in found if record is not None]
        for record in self.attempts[:-1]:
            if "ended" not in record:  # its end could not be written
                cause = record.pop("ending", None) or Cause(POD, "how it ended was not recorded").record()
                record |= {"ended": record["started"], "cause": cause}
        path = self.state_dir / contract.RUN_FILE
        if (run := read_json(path, damaged_is_absent=True)) is not None:
            self.created = run["created"]
        else:
            write_json(
                path,
                {
                    "run": self.run,
                    "run_id": self.run_id,
                    **description,
                    "version": rankzero.__version__,
                    "created": self.created,
                },
            )
        write_json(self.state_dir / OWNER_FILE, {"pod_uid": self.pod_uid})

    def is_owner(self) -> bool:
        """False once another pod has taken node rank 0 over. Reads the volume."""
        owner = read_json(self.state_dir / OWNER_FILE, damaged_is_absent=True)
        return owner is None or owner["pod_uid"] == self.pod_uid

    def save(self) -> None:
        """Write the records that have changed since they were last written. Any thread.

        One at a time: a write that hangs for a while must not come back later and put an older state in place.
        """
        with self._saving:
            for record in list(self.attempts):
                if record["attempt"] in self._unsaved:
                    self._save(record)

    def _save(self, record: dict[str, Any]) -> None:
        self._unsaved.discard(record["attempt"])  # first: a change from now on is not in what is written now
        try:
            write_json(self.state_dir / contract.attempt_file(record["attempt"]), record.copy())
        except BaseException:
            self._unsaved.add(record["attempt"])
            raise

    def last_progress(self) -> dict[str, Any]:
        """The last heartbeat of rank 0 that was written; empty before the first. Reads the volume."""
        progress = read_json(self.state_dir / contract.PROGRESS_FILE, damaged_is_absent=True) or {}
        rank0: dict[str, Any] = progress.get("rank0", {})
        return rank0

    def write_progress(self, rank0: dict[str, Any], ranks: list[dict[str, Any]]) -> None:
        """Write progress.json; it is written again in a moment."""
        document = {"time": time.time(), "rank0": rank0, "ranks": ranks}
        write_json(self.state_dir / contract.PROGRESS_FILE, document, durable=False)

    def outcome(self) -> dict[str, Any] | None:
        """How the run ended; None while it has not. Reads the volume."""
        outcome: dict[str, Any] | None = read_json(self.state_dir / contract.OUTCOME_FILE, damaged_is_absent=True)
        return outcome

    def write_outcome(self, outcome: dict[str, Any]) -> None:
        """Write outcome.json."""
        write_json(self.state_dir / contract.OUTCOME_FILE, outcome)

    def set_outcome_aside(self) -> None:
        """Keep a failed outcome under another name: somebody started the run again, with a fresh budget."""
        if self.attempts:
            self.attempts[-1]["run_failed"] = True
            self._unsaved.add(self.attempts[-1]["attempt"])
            self.save()
        path = self.state_dir / contract.OUTCOME_FILE
        path.replace(path.with_name(f"outcome-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.json"))

    def result(self) -> dict[str, Any]:
        """What the training script reported as its result. Reads the volume."""
        return read_json(self.state_dir / contract.RESULT_FILE, damaged_is_absent=True) or {}

    # --- Memory ---------------------------------------------------------------------------------------------

    def close_lost(self, progress: dict[str, Any], last_words: str, restarts_in_place: bool = True) -> bool:
        """Close an attempt that was cut off by the loss of its rank 0; True where there was one.

        ``last_words`` are those of the launcher before, where its pod is this one. Where containers do not restart in
        place nobody can tell a lost machine from a container that ended by itself, and it counts as the latter.
        """
        if not self.attempts or "ended" in self.attempts[-1]:
            return False
        uid = next((node["uid"] for node in self.attempts[-1]["nodes"] if node["node_rank"] == 0), "")
        same = uid == self.pod_uid
        reason = _with("rank 0's container ended by itself and was started again", last_words)
        reason = reason if same else "rank 0 was lost"
        if ending := self.attempts[-1].get("ending"):
            self._close(ending, progress, None)
            return True
        self.close_attempt(Cause(CONTAINER if same or not restarts_in_place else POD, reason, 0), progress)
        return True

    def open_attempt(self, nodes: list[dict[str, Any]]) -> int:
        """Begin the record of a new attempt and return its number; numbers go on across launchers."""
        number = 1 + (self.attempts[-1]["attempt"] if self.attempts else 0)
        self.attempts.append({"attempt": number, "started": self._now(), "nodes": nodes})
        self._unsaved.add(number)
        return number

    def close_attempt(self, cause: Cause | None, progress: dict[str, Any], elapsed: float | None = None) -> None:
        """End the last attempt's record (``cause`` None: every worker ended with status 0).

        ``elapsed`` is its length in seconds by a clock that nobody sets, where this process has seen its beginning.
        """
        self._close(cause.record() if cause else None, progress, elapsed)

    def _close(self, cause: dict[str, Any] | None, progress: dict[str, Any], elapsed: float | None) -> None:
        record = self.attempts[-1]
        record.pop("ending", None)
        steps = steps_of(record["attempt"], progress)
        length = {} if elapsed is None else {"elapsed": round(elapsed, 3)}
        # What was lost with its rank 0 ended then, as far as anybody knows, not when its successor came.
        ended = (
            max(steps.get("last_time", self._now()), record["started"])
            if elapsed is None
            else record["started"] + elapsed
        )
        record |= {
            **steps,
            **length,
            "ended": ended,
            "cause": cause,
        }
        self._unsaved.add(record["attempt"])

    def note_ending(self, cause: Cause) -> None:
        """Keep in the open attempt's record why it is about to end, in case this pod does not live to close it."""
        self.attempts[-1]["ending"] = cause.record()
        self._unsaved.add(self.attempts[-1]["attempt"])

    def note_where(self, where: dict[str, str]) -> None:
        """Keep in the open attempt's record where each rank was when it stalled."""
        if where:
            self.attempts[-1]["where"] = where

    def _now(self) -> float:
        """Never before what is recorded already, whatever a time server did to the clock meanwhile."""
        last = self.attempts[-1] if self.attempts else {}
        return max([time.time(), *(float(last[key]) for key in ("started", "ended") if key in last)])

    def has_succeeded(self) -> bool:
        """True where every worker of the last attempt ended with status 0."""
        return bool(self.attempts) and "ended" in self.attempts[-1] and self.attempts[-1]["cause"] is None

    def blame_container(self, node_rank: int, last_words: str) -> bool:
        """The pod that seemed lost in the last attempt is back with the same uid: its container ended by itself.

        True where the last attempt's cause was that pod's loss.
        """
        cause = self.attempts[-1].get("cause") if self.attempts else None
        if not cause or cause["kind"] != POD or cause["node_rank"] != node_rank:
            return False
        reason = _with(f"{cause['reason']}: its container ended by itself", last_words)
        self.attempts[-1]["cause"] = {**cause, "kind": CONTAINER, "reason": reason}
        self._unsaved.add(self.attempts[-1]["attempt"])
        return True

    def absolve_container(self, node_rank: int) -> bool:
        """The launcher whose container seemed to have ended in the last attempt is back: only its connection was lost.

        True where the last attempt's cause was that.
        """
        cause = self.attempts[-1].get("cause") if self.attempts else None
        if not cause or cause["kind"] != CONTAINER or cause["node_rank"] != node_rank:
            return False
        self.attempts[-1]["cause"] = {**cause, "kind": POD, "reason": f"{cause['reason']}, and came back"}
        self._unsaved.add(self.attempts[-1]["attempt"])
        return True

    def describe_outcome(self, state: str, reason: str, exit_code: int, result: dict[str, Any]) -> dict[str, Any]:
        """The document of outcome.json."""
        return {
            "run": self.run,
            "run_id": self.run_id,
            "state": state,
            "reason": reason,
            "exit_code": exit_code,
            "ended": self._now(),
            "pod_uid": self.pod_uid,
            "result": result if state == "succeeded" else {},
            "time_s": self.ledger({}),
            "attempts": self.summary({}),
        }

    def ledger(self, progress: dict[str, Any]) -> dict[str, float]:
        """Where the run's time went so far, seconds by bucket, the open attempt included."""
        return ledger.ledger(self._with_open(progress), began=self.created, now=time.time())

    def lost_by_cause(self, progress: dict[str, Any]) -> dict[str, float]:
        """Seconds that failures have cost so far, by kind of cause."""
        return ledger.lost_by_cause(self._with_open(progress), began=self.created, now=time.time())

    def summary(self, progress: dict[str, Any]) -> list[dict[str, Any]]:
        """All attempts without the output of their workers; the open one with its steps so far."""
        return [_short(record) for record in self._with_open(progress)]

    def _with_open(self, progress: dict[str, Any]) -> list[dict[str, Any]]:
        """All attempt records; to the open one what ``progress`` says of it."""
        return [
            record if "ended" in record else {**record, **steps_of(record["attempt"], progress)}
            for record in list(self.attempts)
        ]


def steps_of(attempt: int, progress: dict[str, Any]) -> dict[str, Any]:
    """First and last step of an attempt as rank 0 reported them; empty before its first step."""
    if progress.get("attempt") != attempt or "step" not in progress:
        return {}
    names = {"step": "last_step", "time": "last_time"}
    keys = ("resumed_from", "first_step", "first_step_time", "step", "time", "seconds", "samples", "saved_step")
    return {names.get(key, key): progress[key] for key in keys if key in progress}


def _with(reason: str, last_words: str) -> str:
    return f"{reason}; {last_words}" if last_words else reason


def _short(record: dict[str, Any]) -> dict[str, Any]:
    cause = record.get("cause")
    return {
        **{key: value for key, value in record.items() if key not in {"nodes", "cause", "seconds", "where", "ending"}},
        "cause": cause["reason"] if cause else None,
        "kind": cause["kind"] if cause else None,
    }
