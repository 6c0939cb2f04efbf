"""Copies of finished checkpoints in an object store, made beside the training.

Below ``train.checkpoint.mirror`` a run has a folder, and in it ``step-*/`` with the files of each checkpoint under
their own names, its manifest last, and ``latest.json``. What has no manifest is no checkpoint.
"""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

from rankzero import objects
from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint.background import give_way
from rankzero.train.checkpoint.copying import share_of
from rankzero.train.checkpoint.layout import Layout, step_of
from rankzero.train.checkpoint.node import owner
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.retention import kept, metrics_of
from rankzero.transfer import ENDED, Transfers

FINISH_WITHIN = 900.0
"""Seconds that a run which has ended well waits for its last copy."""
LEAVE_WITHIN = 20.0
"""Seconds that a thread has to come out of a collective when copies are given up."""


def run_url(mirror: str, layout: Layout) -> str:
    """The folder of a run: NAMESPACE_RELEASE_RUN, or, without the launcher, the name of its state directory."""
    return f"{mirror.rstrip('/')}/{owner().rstrip('_') or layout.state_dir.name}"


class Mirror:
    """Copies one checkpoint at a time; of what is finished meanwhile the newest waits.

    All ranks make one and offer the same steps in the same order. Each has a thread that goes through them, a round for
    each: rank 0 decides whether it is copied or passed over, every rank uploads a share of the files, and rank 0
    completes. What a rank cannot do is known to all in the same round.
    """

    def __init__(self, config: CheckpointConfig, layout: Layout, peers: Peers) -> None:
        """``peers`` are used by the thread alone."""
        self.url = run_url(config.mirror, layout)
        self._config, self._layout, self._peers = config, layout, peers
        self._offered: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._transfers = Transfers()
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()
        self._current = self._last = 0
        self._is_left = False
        self._is_known_to_work = False

    @property
    def held(self) -> set[int]:
        """Steps whose checkpoints in the run's folder are still to be read. Rank 0."""
        with self._turn:
            return {self._current, self._last}

    def offer(self, step: int) -> None:
        """Copy the checkpoint of ``step``, which is durable, when it is its turn. Returns at once."""
        with self._turn:
            if self._is_left:
                return
            self._last = step
            self._offered.put(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoint-mirror", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait until the last one is copied, for :data:`FINISH_WITHIN` seconds: the run has ended well."""
        if self._thread is None:
            return
        self._offered.put(None)
        self._thread.join(1)
        if self._thread.is_alive() and self._peers.is_first:
            print(f"the last checkpoint is copied to {self.url}: {FINISH_WITHIN / 60:.0f} minutes at most", flush=True)
        self._thread.join(FINISH_WITHIN)
        if self._thread.is_alive():
            self.leave()
        self._thread = None

    def leave(self) -> None:
        """Give up what is not copied: the run's folder has it, and a later attempt copies it."""
        with self._turn:
            self._is_left = True
        self._transfers.end()
        if self._thread is not None:
            self._offered.put(None)
            self._thread.join(LEAVE_WITHIN)

    def _run(self) -> None:
        give_way()
        try:
            while (step := self._offered.get()) is not None:
                if self._peers.broadcast(self._peers.is_first and self._takes(step)):
                    problem = self._copy(step)
                    if self._peers.is_first:
                        self._tell(step, problem)
        except Exception as error:  # another rank is gone, and this one is about to end as well
            if self._peers.is_first:
                print(f"no more copies to {self.url}: {type(error).__name__}: {error}", flush=True)

    def _takes(self, step: int) -> bool:
        """Rank 0: whether it is this one's turn, which nothing newer waits for."""
        with self._turn:
            if step == self._last:
                self._current = step
                return True
        print(
            f"the checkpoint of step {step} is not copied to {self.url}: copies take longer than the time between two "
            "saves, and a newer one waits",
            flush=True,
        )
        return False

    def _copy(self, step: int) -> str:
        """Why it is not there; empty where it is, on all ranks."""
        peers, source = self._peers, self._layout.path(step)
        files, mine, problem = share_of(source, peers)
        state: dict[str, Any] = {}
        if not problem:
            state, problem = peers.broadcast(self._begin(source) if peers.is_first else ({}, ""))
        if problem or state["is_there"]:
            return problem
        if mine:
            _, problem = self._job("upload", source, files={name: files[name] for name in mine})
            problem = problem and f"rank {peers.rank}: {problem}"
        problem = peers.first_said(problem)
        if not problem and peers.is_first:
            left, problem = self._job("complete", source, step=step, remove=self._removable(step, state))
            if left:
                print(f"old checkpoints in {self.url} could not be removed: {left}", flush=True)
            if not problem and not self._is_known_to_work:
                self._is_known_to_work = True
                print(f"checkpoints are copied to {self.url}, that of step {step} was the first", flush=True)
        return peers.broadcast(problem)

    def _begin(self, source: Path) -> tuple[Any, str]:
        return self._job("begin", source, metrics=self._config.best != "none")

    def _job(self, job: str, source: Path, **arguments: Any) -> tuple[Any, str]:
        return self._transfers.run(job, self.url, name=source.name, source=str(source), **arguments)

    def _removable(self, step: int, state: dict[str, Any]) -> list[str]:
        """Names of what need not stay when ``step`` is there: the rule of the run's own folder, and what is no whole
        checkpoint."""
        steps = {step_of(Path(name)): name for name in state["whole"]}
        metrics = {step_of(Path(name)): metric for name, metric in state["metrics"].items() if metric is not None}
        own = self._layout.path(step)
        if self._config.best != "none":
            metrics |= metrics_of({step: own})
        stay = kept(
            steps,
            step,
            last=self._config.keep,
            every=self._config.keep_every,
            best=self._config.best,
            metrics=metrics,
        )
        names = {name for number, name in steps.items() if number not in stay} | set(state["parts"])
        return sorted(names - {own.name})

    def _tell(self, step: int, problem: str) -> None:
        with self._turn:
            self._current = 0
        if problem.endswith(ENDED):
            print(f"the checkpoint of step {step} is not in {self.url} yet: a later attempt copies it", flush=True)
        elif problem:
            hint = "" if self.url.startswith("file:") else f"\n  fix: {objects.CREDENTIALS}"
            print(
                f"warning: the checkpoint of step {step} was not copied to {self.url}: {problem}\n"
                f"  it is in the run's folder, and the next one will be tried{hint}",
                flush=True,
            )
