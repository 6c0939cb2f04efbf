"""A rank's heartbeat: a small record in its node's memory, written by the rank and read by its launcher.

Writing is a few stores into mapped memory, so a loop can do it many times a step. The reader needs no answer from
the rank, which may hang, be stopped or be dead. Standard library only: the launcher imports this too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from statistics import median
from typing import IO

from rankzero import contract

VERSION = 2
NOT_TOLD = -1
"""As ``saved_step``: the script does not use this library's checkpoints."""
STEPS_REMEMBERED = 51
"""Steps whose median is the step time."""
STEPS_NEEDED = 3
"""Before there are as many, nobody knows how long a step takes: the first ones compile and warm up."""
READ_TRIES = 100
STACK_SIGNAL = signal.SIGRTMIN + 6
"""Asks a rank for the stacks of its threads; it answers from C, also where its main thread hangs in a collective."""


class Phase(IntEnum):
    """What a rank is doing. Before its first step it is starting, between steps it is training."""

    STARTUP = 0
    PREPARATION = 1
    TRAINING = 2
    DATA = 3
    FORWARD = 4
    BACKWARD = 5
    SYNC = 6
    CHECKPOINT = 7
    EVALUATION = 8
    ENDING = 9

    @property
    def label(self) -> str:
        """As people and records read it."""
        return self.name.lower()


STEPPING = frozenset({Phase.TRAINING, Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.SYNC})
"""Phases that are part of every step."""


class _Record(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint64),
        ("watched", ctypes.c_uint64),
        ("phase", ctypes.c_uint64),
        ("saves_on_stop", ctypes.c_uint64),
        ("step", ctypes.c_int64),
        ("total_steps", ctypes.c_int64),
        ("epoch", ctypes.c_int64),
        ("samples", ctypes.c_int64),
        ("resumed_from", ctypes.c_int64),
        ("first_step", ctypes.c_int64),
        ("saved_step", ctypes.c_int64),
        ("loss", ctypes.c_double),
        ("time", ctypes.c_double),
        ("first_step_time", ctypes.c_double),
        ("moved", ctypes.c_double),
        ("step_seconds", ctypes.c_double),
        ("own_seconds", ctypes.c_double),
        ("save_seconds", ctypes.c_double),
        ("seconds", ctypes.c_double * len(Phase)),
    )


WORD = 8
"""Bytes of every field."""
_PHASE, _MOVED, _SECONDS = (getattr(_Record, name).offset // WORD for name in ("phase", "moved", "seconds"))


class _Memory(ctypes.Structure):
    """What both sides see. Record ``count % 2`` is whole: the next one is written beside it, then counted.

    So a rank that is killed or loses its core in the middle of a write leaves its last record as it was.
    """

    _fields_ = (("version", ctypes.c_uint64), ("count", ctypes.c_uint64), ("records", _Record * 2))


@dataclass(frozen=True)
class Course:
    """How far a rank is in the run.

    ``time`` and ``first_step_time`` are seconds since the epoch, ``step_seconds`` the median of the last steps,
    ``save_seconds`` the time of the last checkpoint, ``seconds`` the time spent in each phase that is over.
    ``first_step`` is 0 before the first step of the attempt, ``saved_step`` is that of the newest good checkpoint, 0
    before the first and :data:`NOT_TOLD` where the script does not tell.
    """

    saves_on_stop: bool
    step: int
    total_steps: int
    epoch: int
    samples: int
    resumed_from: int
    first_step: int
    saved_step: int
    time: float
    first_step_time: float
    step_seconds: float
    save_seconds: float
    seconds: dict[str, float]


@dataclass(frozen=True)
class Beat(Course):
    """What a rank last said.

    ``watched`` is True once the script has said that it will report its steps, ``moved`` is monotonic time of this
    machine. ``loss`` may be no number. ``own_seconds`` is the median of what the last steps took without the wait for
    other ranks: ranks that train together all have the same ``step_seconds``, and the one with the most of its own is
    the one that the others wait for.
    """

    pid: int
    watched: bool
    phase: Phase
    loss: float
    moved: float
    own_seconds: float


class Heartbeat:
    """A rank's own end. Without a path it beats for nobody, so that scripts need not ask."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises OSError where ``path`` cannot be made, or is there: it belongs to one process."""
        memory: bytearray | mmap.mmap = bytearray(ctypes.sizeof(_Memory))
        if path is not None:
            with path.open("x+b") as file:
                os.posix_fallocate(file.fileno(), 0, len(memory))  # full memory is an error here, not later
                memory = mmap.mmap(file.fileno(), len(memory))
        # What a loop does many times a step goes through plain views of the same bytes: between the passes of a model
        # caches are cold, and access by ctypes' names takes ten times as long as it does in a tight loop.
        record = bytearray(ctypes.sizeof(_Record))
        self._record = _Record.from_buffer(record)
        self._whole = memoryview(record)
        self._words, self._numbers = self._whole.cast("Q"), self._whole.cast("d")
        first, size = _Memory.records.offset, len(record)
        self._slots = [memoryview(memory)[first + number * size :][:size] for number in range(2)]
        self._counted = memoryview(memory)[_Memory.count.offset :][:WORD].cast("Q")
        self._count = 0
        self._doing = int(Phase.STARTUP)
        self._since = self._stepped = time.monotonic()
        self._steps: deque[float] = deque(maxlen=STEPS_REMEMBERED)
        self._background_save = 0.0
        self._own: deque[float] = deque(maxlen=STEPS_REMEMBERED)
        self._waited = 0.0
        self._record.pid, self._record.saved_step = os.getpid(), NOT_TOLD
        self._numbers[_MOVED] = self._since
        self._publish()
        memoryview(memory)[:WORD].cast("Q")[0] = VERSION

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """The body is ``phase``; afterwards goes on what was before."""
        before = Phase(self._doing)
        began = time.monotonic()
        self.enter(phase)
        try:
            yield
        finally:
            if phase is Phase.CHECKPOINT:
                self._record.save_seconds = max(time.monotonic() - began, self._background_save)
            self.enter(before)

    def enter(self, phase: Phase) -> None:
        """From now on this rank is in ``phase``."""
        self._switch(phase)
        self._publish()

    @property
    def doing(self) -> int:
        """The present phase."""
        return self._doing

    def begin(self, *, total_steps: int, resumed_from: int, saves_on_stop: bool) -> None:
        """What this attempt is about; from now on the watchdog expects steps."""
        self._record.total_steps = int(total_steps)
        self._record.resumed_from = int(resumed_from)
        self._record.saves_on_stop = saves_on_stop
        self._record.watched = True
        self._publish()

    def saved(self, step: int, *, seconds: float = 0.0) -> None:
        """The newest good checkpoint is that of ``step``; 0 where there is none yet.

        ``seconds`` is how long it took where it was written beside the training: what a stop has to wait for.
        """
        self._record.saved_step = step
        if seconds:
            self._record.save_seconds = self._background_save = seconds
        self._publish()

    def step(self, step: int, *, epoch: int, loss: float, samples: int = 0, waited: float | None = None) -> None:
        """Optimizer step ``step`` (from 1) is done; ``samples`` are those that all ranks together have used in it.

        ``waited`` is seconds of it spent waiting for other ranks, where the caller knows better than phase SYNC.
        """
        record, wall = self._record, time.time()
        self._switch(Phase.TRAINING)
        if record.first_step:
            took, in_sync = self._since - self._stepped, record.seconds[Phase.SYNC]
            self._steps.append(took)
            self._own.append(max(0.0, took - (in_sync - self._waited if waited is None else waited)))
            if len(self._steps) >= STEPS_NEEDED:
                record.step_seconds, record.own_seconds = median(self._steps), median(self._own)
        else:
            record.first_step, record.first_step_time = int(step), wall
            started = sum(record.seconds)  # reading, compiling, connecting: until now all of it was the start
            record.seconds = type(record.seconds)()
            record.seconds[Phase.STARTUP] = started
        self._stepped, self._waited = self._since, record.seconds[Phase.SYNC]
        record.watched = True
        record.step, record.epoch, record.loss, record.time = int(step), int(epoch), float(loss), wall
        record.samples += samples
        self._publish()

    @property
    def beat(self) -> Beat:
        """What a reader sees now."""
        return _beat(self._record)

    def _switch(self, phase: Phase) -> None:
        now = time.monotonic()
        self._numbers[_SECONDS + self._doing] += now - self._since
        self._doing = self._words[_PHASE] = int(phase)
        self._since = self._numbers[_MOVED] = now

    def _publish(self) -> None:
        self._count += 1
        self._slots[self._count % 2][:] = self._whole
        self._counted[0] = self._count


def read(path: Path) -> Beat | None:
    """The last heartbeat in ``path``; None where the rank has not begun to beat."""
    size = ctypes.sizeof(_Memory)
    try:
        with path.open("rb", buffering=0) as file:
            for _ in range(READ_TRIES):
                raw, again = os.pread(file.fileno(), size, 0), os.pread(file.fileno(), size, 0)
                if len(again) < size:
                    return None
                memory, later = _Memory.from_buffer_copy(raw), _Memory.from_buffer_copy(again)
                if memory.count == later.count:  # so what was copied is not what is being written
                    break
    except FileNotFoundError:
        return None
    if memory.version != VERSION:
        return None
    try:
        return _beat(memory.records[memory.count % 2])
    except ValueError:  # a phase that is none: the file is not what it should be
        return None


def _beat(record: _Record) -> Beat:
    values = {name: getattr(record, name) for name, _ in _Record._fields_}
    values["phase"] = Phase(record.phase)
    values["watched"], values["saves_on_stop"] = bool(record.watched), bool(record.saves_on_stop)
    values["seconds"] = {phase.label: record.seconds[phase] for phase in Phase if record.seconds[phase]}
    return Beat(**values)


_current: Heartbeat | None = None


def current() -> Heartbeat:
    """This process's heartbeat: where its launcher looks, or nowhere without one. Every rank has its own."""
    global _current
    if _current is None:
        try:
            _current = _of_this_rank(os.environ.get(contract.ENV_ATTEMPT_DIR, ""), os.environ.get("RANK", ""))
        except OSError as error:  # no reason to end a training
            sys.stderr.write(f"the launcher cannot see this rank's progress: {error}\n")
            _current = Heartbeat()
    return _current


def _of_this_rank(folder: str, rank: str) -> Heartbeat:
    if not folder or not rank.isdecimal():
        return Heartbeat()
    path = Path(folder, contract.heartbeat_file(int(rank)))
    if path.exists():  # a process that the rank has started, with its environment
        return Heartbeat()
    _write_stacks_when_asked(Path(folder, contract.stack_file(int(rank))))  # only a rank that beats is asked
    return Heartbeat(path)


_stacks: IO[bytes] | None = None
"""Kept open: faulthandler writes to its descriptor."""


def _write_stacks_when_asked(path: Path) -> None:
    global _stacks
    _stacks = path.open("wb", buffering=0)
    faulthandler.register(STACK_SIGNAL, file=_stacks, all_threads=True)
