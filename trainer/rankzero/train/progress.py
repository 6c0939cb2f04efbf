"""What a run says about itself while it runs: one line for people, files for the launcher and for later.

Every rank keeps its last heartbeat in progress/rank-NNNNN.json; rank 0 alone prints and appends to metrics.jsonl.
A volume that refuses them is said once and ends no training.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankzero import contract
from rankzero.files import write_json

RANK_0_HEARTBEAT, HEARTBEAT = 0.2, 2.0
"""Seconds between two heartbeats of a rank; the first step of an attempt is written at once.

Rank 0's says how far an attempt came, so it is finer; many ranks on one file server must not be."""


def state_dir() -> Path | None:
    """The run's state directory; None for a script that no launcher has started."""
    path = os.environ.get(contract.ENV_STATE_DIR)
    return Path(path) if path else None


class Progress:
    """Counts optimizer steps of one rank. ``total_steps`` is the whole run's, ``resumed_from`` the step loaded.

    ``saves_on_stop`` tells the launcher that it is worth waiting for the script when a pod is being stopped.
    """

    def __init__(
        self, rank: int, *, total_steps: int, resumed_from: int, log_every: int, saves_on_stop: bool = False
    ) -> None:
        self.rank = rank
        self.total_steps = total_steps
        self.log_every = log_every
        self._folder = state_dir()
        self._attempt = int(os.environ.get(contract.ENV_ATTEMPT, 1))
        self._beat: dict[str, Any] = {"rank": rank, "attempt": self._attempt, "resumed_from": resumed_from}
        self._beat["saves_on_stop"] = saves_on_stop
        self._written = 0.0
        self._began = time.monotonic()
        self._resumed_from = resumed_from
        self._complained = False

    def step(self, step: int, *, epoch: int, loss: float, learning_rate: float, leaving: bool = False) -> None:
        """Report that optimizer step ``step`` (from 1) is done. Every rank calls it after each step.

        ``leaving`` says that it is this attempt's last, so that the record is exact.
        """
        now = time.time()
        if "first_step" not in self._beat:
            self._beat |= {"first_step": step, "first_step_time": now}
        self._beat |= {"step": step, "total_steps": self.total_steps, "epoch": epoch, "loss": loss, "time": now}
        first, last = step == self._beat["first_step"], leaving or step == self.total_steps
        if first or last or now - self._written >= (HEARTBEAT if self.rank else RANK_0_HEARTBEAT):
            self._heartbeat(now)
        if self.rank == 0 and (first or last or step % self.log_every == 0):
            self._log(step, epoch, loss, learning_rate, now)

    def _heartbeat(self, now: float) -> None:
        if self._folder is not None:
            with self._best_effort():
                write_json(self._folder / contract.progress_file(self.rank), self._beat, durable=False)
        self._written = now

    def _log(self, step: int, epoch: int, loss: float, learning_rate: float, now: float) -> None:
        rate = (step - self._resumed_from) / max(time.monotonic() - self._began, 1e-9)
        print(
            f"step {step}/{self.total_steps}  epoch {epoch}  loss {loss:.4f}  lr {learning_rate:.3g}  "
            f"{rate:.1f} steps/s",
            flush=True,
        )
        if self._folder is not None:
            line = {
                "time": now,
                "attempt": self._attempt,
                "step": step,
                "epoch": epoch,
                "loss": loss,
                "learning_rate": learning_rate,
            }
            with self._best_effort(), (self._folder / contract.METRICS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    @contextmanager
    def _best_effort(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._complained:
                self._complained = True
                print(f"progress cannot be recorded ({error}); training goes on without", flush=True)


def report_result(**metrics: float) -> None:
    """Record the run's result (accuracy, loss, ...); it becomes part of the outcome. Rank 0 calls it."""
    folder = state_dir()
    if folder is not None:
        write_json(folder / contract.RESULT_FILE, metrics)
