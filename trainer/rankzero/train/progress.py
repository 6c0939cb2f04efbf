"""What a run says about itself while it runs: a heartbeat for the launcher, a line for people, metrics for later.

Every rank beats into its node's memory (:mod:`rankzero.heartbeat`); rank 0 alone prints and appends to
metrics.jsonl. A volume that refuses them is said once and ends no training.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from rankzero import contract, heartbeat
from rankzero.files import finite, write_json
from rankzero.heartbeat import Phase

T = TypeVar("T")


def state_dir() -> Path | None:
    """The run's state directory; None for a script that no launcher has started."""
    path = os.environ.get(contract.ENV_STATE_DIR)
    return Path(path) if path else None


def phase(phase: Phase) -> AbstractContextManager[None]:
    """The body is ``phase``: it has a time limit of its own, and its time is accounted for. Any rank, any time."""
    return heartbeat.current().phase(phase)


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
        self.heartbeat = heartbeat.current()
        self.heartbeat.begin(total_steps=total_steps, resumed_from=resumed_from, saves_on_stop=saves_on_stop)
        self._folder = state_dir()
        self._attempt = int(os.environ.get(contract.ENV_ATTEMPT, 1))
        self._first = resumed_from + 1
        self._began = time.monotonic()
        self._resumed_from = resumed_from
        self._complained = False

    def step(
        self, step: int, *, epoch: int, loss: float, learning_rate: float, samples: int = 0, leaving: bool = False
    ) -> None:
        """Report that optimizer step ``step`` (from 1) is done. Every rank calls it after each step.

        ``samples`` are those that this rank used in it; ``leaving`` says that it is this attempt's last, so that it
        is printed.
        """
        self.heartbeat.step(step, epoch=epoch, loss=loss, samples=samples)
        noted = step in {self._first, self.total_steps} or leaving or step % self.log_every == 0
        if self.rank == 0 and noted:
            self._log(step, epoch, loss, learning_rate, time.time())

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """``loader``, with the time spent waiting for it counted as data wait."""
        batches = iter(loader)
        while True:
            with self.heartbeat.phase(Phase.DATA):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

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
                "loss": finite(loss),
                "learning_rate": finite(learning_rate),
            }
            with self._best_effort(), (self._folder / contract.METRICS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")

    @contextmanager
    def _best_effort(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._complained:
                self._complained = True
                print(f"progress cannot be recorded ({error}); training goes on without", flush=True)


def report_result(**metrics: float) -> None:
    """Record the run's result (accuracy, loss, ...); it becomes part of the outcome. Rank 0 calls it.

    A figure that is NaN or infinite is recorded as null.
    """
    folder = state_dir()
    if folder is not None:
        write_json(folder / contract.RESULT_FILE, {name: finite(figure) for name, figure in metrics.items()})
