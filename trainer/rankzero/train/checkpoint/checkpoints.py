"""The checkpoints of one run: what a training script holds."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rankzero import contract, heartbeat
from rankzero.config import CheckpointConfig, ResumeConfig, TrainConfig
from rankzero.errors import CheckpointError, ConfigError
from rankzero.heartbeat import Phase
from rankzero.train.checkpoint import load, manifest, plan, source, space, weights
from rankzero.train.checkpoint.background import Background, give_way
from rankzero.train.checkpoint.interval import Interval
from rankzero.train.checkpoint.layout import Layout
from rankzero.train.checkpoint.load import Loader
from rankzero.train.checkpoint.mirror import Mirror
from rankzero.train.checkpoint.nearby import Nearby
from rankzero.train.checkpoint.node import Node
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.plan import Plan
from rankzero.train.checkpoint.retention import clean
from rankzero.train.checkpoint.staging import Staging
from rankzero.train.checkpoint.tier import Tier
from rankzero.train.checkpoint.tracked import STEP, Tracked
from rankzero.train.checkpoint.write import Outcome, Save, write
from rankzero.train.progress import made_state_dir
from rankzero.train.sharding import local

FINISH_WITHIN = 20.0
"""Seconds that a save which is being written has to end in when the script has failed. It mostly does, since the other
ranks' threads go on; a thread that is in torch's writer when the interpreter ends would abort the process, and the
error would look like one of the machine."""
HINT = "is the checkpoint volume full? checkpoints.size, train.checkpoint.keep and keepEvery set the room it needs"


class Checkpoints:
    """Saves and resumes what it tracks; all ranks make one and call the same methods after the same steps.

        with Checkpoints(state_dir, config.checkpoint, config.resume) as checkpoints:
            checkpoints.track(model=model, optimizer=optimizer, schedule=schedule)
            step = checkpoints.resume()
            ...
                if checkpoints.due(step):
                    checkpoints.save(step)

    With ``asynchronous`` a save holds the loop up for milliseconds: copies are taken beside the next forward and
    backward pass and written in the background. A failure to write is known at the next step on all ranks, rank 0 says
    it, and training goes on: the volume may have room again by the next time.
    """

    def __init__(
        self,
        state_dir: Path | None,
        config: CheckpointConfig | None = None,
        resume: ResumeConfig | None = None,
        *,
        settings: Any = None,
    ) -> None:
        """``state_dir`` is a folder that all ranks share; None saves nothing.

        ``settings``, plain data, goes into each manifest for people who look at it later.
        """
        self.config = config or CheckpointConfig()
        self.layout = Layout(state_dir or Path(os.devnull))  # where nothing is ever found
        self._off = state_dir is None
        self.tracked = Tracked()
        self._resume = resume or ResumeConfig()
        self._settings = settings
        self._peers_of: dict[str, Peers] = {}
        self._tier: Tier | None = None
        self._mirror: Mirror | None = None
        self._is_leaving = False
        self._plan: Plan | None = None
        self._staging = Staging()
        self._background: Background[Outcome] = Background()
        self._interval: Interval | None = None
        self._alert = space.Alert()
        self._last_size = 0
        if not self._off:
            heartbeat.current().saved(0)

    @classmethod
    @contextmanager
    def of_run(cls, config: TrainConfig) -> Iterator[Checkpoints]:
        """Those of the run that the launcher has started; without one nothing is saved, which is said."""
        with cls(
            made_state_dir(), config.checkpoint, config.resume, settings=dataclasses.asdict(config)
        ) as checkpoints:
            yield checkpoints

    def __iter__(self) -> Iterator[Path]:
        """All finished checkpoints, newest first. Any rank."""
        return iter(self.layout.finished())

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, SystemExit):  # it may be in a hurry
            self._settle(*self._known(self._background.wait(), wait=True))
            if self._mirror:
                self._mirror.leave() if getattr(error, "code", None) else self._mirror.finish()
        else:  # which other ranks may not share, nor wait for
            self._background.join(FINISH_WITHIN)
            if self._tier:
                self._tier.copies.give_up(FINISH_WITHIN)
            if self._mirror:
                self._mirror.leave()
            with suppress(Exception):  # the script's own error is the one to be told
                self._settle(*self._known(self._background.poll()))

    def track(self, **parts: object) -> None:
        """Hand over live objects by name, before :meth:`resume`: modules before their optimizers, then what has
        ``state_dict()`` and ``load_state_dict()`` and is the same on all ranks.

        Raises :class:`CheckpointError` for what has no state.
        """
        for name, part in parts.items():
            self.tracked.add(name, part)
            if name in self.tracked.optimizers:
                self.tracked.module_of(name)
                self.tracked.optimizers[name].register_step_pre_hook(self._staging.wait)

    def track_each_rank(self, **parts: object) -> None:
        """Hand over objects whose state differs between ranks: only a world of the same size can load it again."""
        for name, part in parts.items():
            self.tracked.add_own(name, part)

    def resume(self) -> int:
        """Load what train.resume says, into what is tracked; the step to go on from, 0 for a new run.

        Raises :class:`ConfigError` where that names no checkpoint or an unknown part, and :class:`CheckpointError`
        where a checkpoint does not fit, on all ranks.
        """
        peers = self._peers("loop")
        if self._off and peers.is_first:
            print(f"no checkpoints are written: {contract.ENV_STATE_DIR} names no folder for them", flush=True)
        parts = self._parts()
        tier = self._tier
        nearby = Nearby(tier.node, peers, lambda folder: load.ranges(folder, self.tracked)) if tier else None
        mirror = self._mirror
        path = source.chosen(self._resume, self.layout, peers, nearby, mirror.url if mirror else "")
        step = 0
        if path is not None and weights.is_weights(path):
            self._load_weights(path)
        elif path is not None:
            loader = Loader(path, self.tracked, strict=self._resume.strict, peers=peers)
            on_node = tier is not None and path.parent == tier.node.layout.folder
            is_own = on_node or path.parent == self.layout.folder
            loader.load(self.tracked.names if is_own else parts)
            step = loader.step if is_own or STEP in parts else 0
            if peers.is_first:
                told = f"resumed from step {step}" if step else f"loaded {', '.join(parts)}"
                where = ", from the nodes' own disks" if on_node else "" if is_own else f" of {path}"
                print(f"{told}{where}", flush=True)
            if is_own:
                self._last_size = manifest.size(path)
                heartbeat.current().saved(step)
            is_on_its_way = tier is not None and on_node and tier.catch_up(step, time.monotonic(), peers)
            if mirror and is_own and not is_on_its_way:
                mirror.offer(step)
        self._interval = Interval(self.config, peers, step)
        return step

    def due(self, step: int) -> bool:
        """Whether to save after ``step``. Every rank calls it after every optimizer step; it mostly talks to nobody.

        Says what has become of the save before. Raises :class:`CheckpointError` where a bug kept it from being written.
        """
        if self._off:
            return False
        self._settle(*self._known(self._background.poll()))
        if self._interval is None:
            self._interval = Interval(self.config, self._peers("loop"), step - 1)
        return self._interval.due(step)

    def save(self, step: int, *, metric: float | None = None, wait: bool = False, final: bool = False) -> bool:
        """Take a checkpoint after ``step`` optimizer steps. Every rank calls it.

        ``metric`` is what train.checkpoint.best compares. ``wait`` returns when the checkpoint is durable or has
        failed: for the last one before the process leaves. ``final``, after which the run's result would be lost,
        waits too, and raises :class:`CheckpointError` on all ranks where it failed. False where it is known by now that
        there is no checkpoint of ``step``.
        """
        if self._off:
            return True
        began = time.monotonic()
        with heartbeat.current().phase(Phase.CHECKPOINT):
            self._settle(*self._known(self._background.wait()))
            self._background.join()
            self._is_leaving = wait
            if self._tier and (wait or final):
                self._tier.copies.hurry(step)
            self._begin(step, metric, began, in_background=self.config.asynchronous)
            outcome = None
            if wait or final or not self.config.asynchronous:
                *earlier, outcome = self._known(self._background.wait(), wait=wait or final)
                self._settle(*earlier)
            if not self.config.asynchronous:
                self._background.join()
        if self._interval is not None:
            self._interval.saved(step, time.monotonic() - began)
        if outcome is not None and outcome.problem and final:
            raise self._failure(outcome)
        self._settle(*filter(None, [outcome]))
        return outcome is None or not outcome.problem

    def wait_for_copies(self) -> None:
        """For a script that changes weights otherwise than by a tracked optimizer: call it before."""
        self._staging.wait()

    def close(self) -> None:
        """Wait until the last save is durable, or has failed, which is said. Every rank calls it at the end."""
        with heartbeat.current().phase(Phase.CHECKPOINT):
            self._settle(*self._known(self._background.wait(), wait=True))
            self._background.join()
            if self._tier:
                self._tier.close(self._peers("loop"))
            if self._mirror:
                self._mirror.finish()

    def verify(self, path: Path) -> str:
        """Why a checkpoint cannot be trusted; an empty text where it can. Any rank."""
        return manifest.verify(path)

    def _begin(self, step: int, metric: float | None, began: float, *, in_background: bool) -> None:
        loop, writers = self._peers("loop"), self._peers("writers")
        with loop.all_or_none(f"the state after step {step} could not be taken"):
            capture = self.tracked.capture(step, is_first=loop.is_first)
        self._plan = plan.agreed(self._plan, capture.entries, capture.stable, self.layout.folder, loop)
        save = Save(step, capture, self._plan, self._settings, metric, began)
        if in_background:
            self._staging.begin(capture.entries, self._plan.names, capture.stable)
            copies = self._staging.copies
        else:
            copies = {name: local(capture.entries[name]) for name in self._plan.names}

        def work() -> Outcome:
            if in_background:
                self._staging.finish()
                give_way()
            if self._tier:
                outcome = self._tier.write(save, copies, self._last_size, writers)
            else:
                outcome = write(save, copies, self.layout, self._last_size, writers)
            if self._mirror and not outcome.problem and not outcome.on_nodes_only:
                self._mirror.offer(step)
            return outcome

        def afterwards(outcome: Outcome) -> None:
            if writers.is_first and not outcome.problem and not outcome.on_nodes_only:
                self._clean(outcome.step)

        self._background.start(work, afterwards)

    def _known(self, outcome: Outcome | None, *, wait: bool = False) -> list[Outcome]:
        """What has become of saves: of the one just written, ``outcome``, and of copies, with ``wait`` of all."""
        outcomes = [] if outcome is None else [outcome]
        if self._tier is None:
            return outcomes
        if wait:
            self._tier.copies.join()
        copied = list(self._tier.copies.poll())
        # What was waited for is the last: a copy of what was just written, or that itself where it needed none.
        return outcomes + copied if wait and outcome and outcome.on_nodes_only else copied + outcomes

    def _settle(self, *outcomes: Outcome) -> None:
        """Tell people and the launcher what has become of saves, in this order."""
        for outcome in outcomes:
            if outcome.problem:
                self._complain(outcome)
                continue
            self._last_size = outcome.size
            if self._interval is not None and (outcome.on_nodes_only or not self._tier):
                self._interval.whole = outcome.seconds
                self._interval.cost += self._staging.waited
            if not outcome.on_nodes_only:
                heartbeat.current().saved(outcome.step, seconds=outcome.seconds)

    def _complain(self, outcome: Outcome) -> None:
        failure = self._failure(outcome)
        if outcome.is_bug:
            raise failure
        if self._peers("loop").is_first:
            print(
                f"warning: {failure}\n  training goes on; until a save succeeds, a restart loses more steps", flush=True
            )

    def _failure(self, outcome: Outcome) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint of step {outcome.step} could not be written: {outcome.problem}",
            hint="report it with the lines above" if outcome.is_bug else HINT,
        )

    def _copied(self, outcome: Outcome) -> None:
        """Every rank, when a copy is durable: deleting can wait where a process is being stopped."""
        if self._mirror:
            self._mirror.offer(outcome.step)
        if self._peers("loop").is_first and not self._is_leaving:
            self._clean(outcome.step)

    def _clean(self, saved: int) -> None:
        """Delete what need not stay. Rank 0, when ``saved`` is durable and nothing is being written."""
        clean(self.layout, self.config, saved, self._mirror.held if self._mirror else ())
        try:
            if text := self._alert.text(self.layout.folder):
                print(f"warning: {text}", flush=True)
        except OSError:  # who cannot be asked has nothing to tell
            return

    def _parts(self) -> list[str]:
        """What train.resume.parts means."""
        parts = list(self._resume.parts) or self.tracked.names
        if unknown := [part for part in parts if part not in self.tracked.names]:
            raise ConfigError(
                f"train.resume.parts names {', '.join(unknown)}, which this script does not track",
                hint=f"allowed: {', '.join(self.tracked.names)}; an empty list means all of them",
            )
        return parts

    def _load_weights(self, path: Path) -> None:
        peers = self._peers("loop")
        if not self.tracked.modules:
            raise ConfigError(f"train.resume.from is {path}, and no model is tracked", hint="track(model=...) first")
        name = "model" if "model" in self.tracked.modules else next(iter(self.tracked.modules))
        left_out = weights.load(self.tracked.modules[name], path, strict=self._resume.strict, peers=peers)
        if peers.is_first:
            print(f"loaded the weights of {name} from {path}", *left_out, sep="\n  ", flush=True)

    def _peers(self, use: str) -> Peers:
        """Two groups, since the loop and the writers talk at the same time, and one for each that copies. All ranks
        make them at the same call."""
        if not self._peers_of:
            self._peers_of = {"loop": Peers(), "writers": Peers()}
            if self.config.local_path and not self._off:
                node = Node.meet(Path(self.config.local_path), self.layout, self._peers_of["loop"])
                self._tier = Tier(node, self.layout, Peers(), self._copied) if node else None
            if self.config.mirror and not self._off:
                self._mirror = Mirror(self.config, self.layout, Peers())
        return self._peers_of[use]
