"""What a run says about itself while it runs: a heartbeat for the launcher, a line for people, metrics for later.

Every rank beats into its node's memory (:mod:`rankzero.heartbeat`) and looks at its own memory; rank 0 alone prints,
appends to metrics.jsonl and reports to the trackers. Whatever refuses figures is said once and ends no training.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from rankzero import contract, heartbeat
from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.files import finite, write_json
from rankzero.heartbeat import STEPPING, Phase
from rankzero.train import flops, memory, speed
from rankzero.train.distributed import Ranks
from rankzero.train.phases import DeviceWait, Phases
from rankzero.train.trackers import Trackers

T = TypeVar("T")

LOOK_AT_MEMORY_EVERY = 1000
"""Steps between two looks for a leak, where an epoch is longer."""
NEVER = {errno.EACCES, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS}
"""Why a folder cannot be made, today or tomorrow."""


def state_dir() -> Path | None:
    """The run's state directory; None for a script that no launcher has started."""
    path = os.environ.get(contract.ENV_STATE_DIR)
    return Path(path) if path else None


def made_state_dir() -> Path | None:
    """The same, and it is there. Every rank may call it.

    Raises :class:`ConfigError` where it never can be; a volume that is full or away may be there for the first save.
    """
    folder = state_dir()
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in NEVER:
            return folder
        raise ConfigError(
            f"{contract.ENV_STATE_DIR} is {folder}, which cannot be made: {error.strerror}",
            hint="name a folder that all ranks share and may write to, or unset it to keep nothing",
        ) from error
    return folder


def phase(phase: Phase) -> AbstractContextManager[None]:
    """The body is ``phase``: it has a time limit of its own, and its time is accounted for. Any rank, any time."""
    return heartbeat.current().phase(phase)


class Progress:
    """Counts optimizer steps of one rank; every rank makes one.

    ``total_steps`` is the whole run's, ``resumed_from`` the step loaded. ``saves_on_stop`` tells the launcher that it
    is worth waiting for the script when a pod is being stopped. ``data_ranks`` is how many ranks read different
    samples, all of them unless the model is split; ``flops_per_sample`` what one sample costs, forward and backward
    (:mod:`rankzero.train.flops`). Raises :class:`ConfigError` where the state directory can never be made, and on rank
    0 where the settings ask for a package that is not there.
    """

    def __init__(
        self,
        config: TrainConfig,
        ranks: Ranks,
        *,
        total_steps: int,
        resumed_from: int,
        saves_on_stop: bool = False,
        data_ranks: int | None = None,
        flops_per_sample: float = 0.0,
    ) -> None:
        self.rank = ranks.rank
        self.total_steps = total_steps
        self.log_every = config.log_every_steps
        self.heartbeat = heartbeat.current()
        self._data_ranks = ranks.world_size if data_ranks is None else data_ranks
        self._folder = made_state_dir()
        self._attempt = int(os.environ.get(contract.ENV_ATTEMPT, 1))
        self._first = resumed_from + 1
        self._epoch, self._looked = -1, resumed_from
        self._growth = {name: memory.Growth(f"{what} of rank {ranks.rank}") for name, what in MEMORY_OF.items()}
        self._complained = False
        cuda = torch.cuda.is_available()
        self._phases = Phases(self.heartbeat, DeviceWait(_timed_event) if cuda else None)
        peak = config.progress.peak_tflops * 1e12 or (flops.peak(torch.cuda.get_device_name()) if cuda else 0.0)
        self._speed = speed.Speed(
            lambda: self.heartbeat.beat, flops_per_sample=flops_per_sample, peak=peak * ranks.world_size
        )
        self._trackers: Trackers | None = None
        if self._folder and ranks.is_first:
            self._trackers = Trackers(config.progress, self._folder, resumed_from=resumed_from)
        if ranks.is_first and 0 < total_steps <= resumed_from:
            told = f"step {resumed_from} is reached, and these settings and ranks make {total_steps} in all"
            print(told, flush=True)
        self.heartbeat.begin(total_steps=total_steps, resumed_from=resumed_from, saves_on_stop=saves_on_stop)

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Tell forward, backward and sync apart by hooks on ``model``, as the loop calls it, and on ``optimizer``."""
        self._phases.watch(model, optimizer)

    def step(
        self,
        step: int,
        *,
        epoch: int,
        loss: float,
        learning_rate: float,
        samples: int = 0,
        tokens: int = 0,
        leaving: bool = False,
        **figures: float,
    ) -> None:
        """Report that optimizer step ``step`` (from 1) is done. Every rank calls it after each step.

        ``samples`` and ``tokens`` are those that this rank used in it; ``leaving`` says that it is this attempt's last,
        so that it is printed. Further ``figures`` (a norm, an accuracy) go where the loss goes.
        """
        self.heartbeat.step(
            step, epoch=epoch, loss=loss, samples=samples * self._data_ranks, waited=self._phases.waited()
        )
        self._speed.add(tokens * self._data_ranks)
        if epoch != self._epoch or step - self._looked >= LOOK_AT_MEMORY_EVERY:
            self._epoch, self._looked = epoch, step
            self._look_for_leaks()
        noted = step in {self._first, self.total_steps} or leaving or step % self.log_every == 0
        if self.rank == 0 and noted:
            self._log(step, epoch, {"loss": loss, "learning_rate": learning_rate, **figures})

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """``loader``, with the time spent waiting for it counted as data wait."""
        batches = iter(loader)
        while True:
            before = self.heartbeat.doing
            self.heartbeat.enter(Phase.DATA)
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                # Between two micro-batches that was the sync of the one before, which is over.
                self.heartbeat.enter(Phase.TRAINING if before in STEPPING else Phase(before))
            yield batch

    def _look_for_leaks(self) -> None:
        held = memory.usage()
        for name, growth in self._growth.items():
            if name in held and (warning := growth.mark(held[name])):
                print(f"warning: {warning}", flush=True)

    def _log(self, step: int, epoch: int, told: dict[str, float]) -> None:
        fast, held = self._speed.look(), memory.usage()
        figures = {**{name: finite(float(figure)) for name, figure in told.items()}, **fast, "memory": held}
        print(
            f"step {step}/{self.total_steps}  epoch {epoch}  loss {told['loss']:.4f}  lr {told['learning_rate']:.3g}  "
            f"{speed.sentence(fast)}".rstrip(),
            flush=True,
        )
        if self._folder is not None:
            line = {"time": time.time(), "attempt": self._attempt, "step": step, "epoch": epoch, **figures}
            with self._best_effort(), (self._folder / contract.METRICS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        if self._trackers is not None:
            self._trackers.log(step, {"epoch": float(epoch), **_flat(figures)})

    @contextmanager
    def _best_effort(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._complained:
                self._complained = True
                said = f"{error.filename or self._folder}: {error.strerror or error}"
                print(f"progress cannot be recorded ({said}); training goes on, and it is tried again", flush=True)


def _timed_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


MEMORY_OF = {"host": "the memory", "allocated": "the GPU memory"}
"""Figures of :func:`rankzero.train.memory.usage` that are looked at for leaks, and what they are."""


def _flat(figures: dict[str, Any]) -> dict[str, float]:
    """``{"memory": {"host": 1}}`` -> ``{"memory/host": 1.0}``; what is no number is left out."""
    flat: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            flat |= {f"{name}/{inner}": float(part) for inner, part in value.items()}
        elif value is not None:
            flat[name] = float(value)
    return flat


def report_result(**metrics: float) -> None:
    """Record the run's result (accuracy, loss, ...); it becomes part of the outcome. Rank 0 calls it.

    A figure that is NaN or infinite is recorded as null.
    """
    folder = state_dir()
    if folder is not None:
        write_json(folder / contract.RESULT_FILE, {name: finite(figure) for name, figure in metrics.items()})
