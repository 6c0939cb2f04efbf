"""Forward, backward and sync are told apart without a word in the loop, and with them who holds up whom."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankzero import heartbeat
from rankzero.heartbeat import Heartbeat, Phase
from rankzero.train.phases import DeviceWait, Phases
from tests.trainer.ranks import run
from tests.trainer.reporting import progress as progress_of

SLOW = 0.3
"""Seconds that the slow rank needs more: a hundred times what a step of the other takes."""


class Noting(Heartbeat):
    """Remembers which phases it was in."""

    def __init__(self) -> None:
        self.seen: list[Phase] = []
        super().__init__()

    def enter(self, phase: Phase) -> None:
        self.seen.append(phase)
        super().enter(phase)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Noting:
    monkeypatch.setattr(heartbeat, "_current", Noting())
    current = heartbeat.current()
    assert isinstance(current, Noting)
    return current


class Wrapped(nn.Module):
    """Returns its outputs as models of other people do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 1)

    def forward(self, inputs: Tensor) -> dict[str, Any]:
        return {"hidden": None, "logits": (inputs, [self.inner(inputs)])}


def test_a_watched_loop_goes_through_all_phases_of_a_step(own: Noting) -> None:
    model, progress = nn.Linear(2, 1), progress_of(total_steps=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    progress.watch(model, optimizer)
    for number, inputs in enumerate(progress.batches(torch.ones(2, 4, 2)), 1):
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        progress.step(number, epoch=0, loss=loss.item(), learning_rate=0.1)
    step = [Phase.FORWARD, Phase.BACKWARD, Phase.SYNC, Phase.TRAINING]
    waits = [Phase.DATA, Phase.TRAINING]
    assert own.seen == [Phase.DATA, Phase.STARTUP, *step, *waits, *step, *waits]


def test_a_model_that_returns_a_mapping_is_understood(own: Noting) -> None:
    model = Wrapped()
    Phases(own).watch(model, None)
    model(torch.ones(3, 2))["logits"][1][0].sum().backward()
    assert own.seen == [Phase.FORWARD, Phase.BACKWARD, Phase.SYNC]


def test_micro_batches_without_an_optimizer_step_are_told_apart_too(own: Noting) -> None:
    model = nn.Linear(2, 1)
    Phases(own).watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        model(torch.ones(3, 2)).sum().backward()
    assert own.seen == [Phase.FORWARD, Phase.BACKWARD, Phase.SYNC] * 2


def test_an_evaluation_stays_one_whatever_runs_in_it(own: Noting) -> None:
    """Its time limit is another: forward would have that of a step."""
    model = nn.Linear(2, 1)
    Phases(own).watch(model, None)
    own.step(1, epoch=0, loss=1.0)
    with own.phase(Phase.EVALUATION):
        model(torch.ones(3, 2)).sum().backward()
    with torch.no_grad():
        model(torch.ones(3, 2))
    assert own.seen == [Phase.EVALUATION, Phase.TRAINING]


class FakeEvent:
    """Stands in for torch.cuda.Event, which needs a GPU: moments of a device whose clock the test sets."""

    now = 0.0
    done = 0.0

    def record(self) -> None:
        self.at = FakeEvent.now

    def query(self) -> bool:
        return self.at <= FakeEvent.done

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at - self.at


def test_a_gpu_is_asked_how_long_it_waited_and_never_waited_for(own: Noting) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(own, DeviceWait(FakeEvent))
    phases.watch(model, optimizer)
    optimizer.register_step_pre_hook(lambda *_: None)
    for begin, end in ((100.0, 130.0), (200.0, 250.0)):
        loss = model(torch.ones(3, 2)).sum()
        FakeEvent.now = begin
        loss.backward()
        FakeEvent.now = end
        optimizer.step()
    FakeEvent.done = 220.0  # the device is in the second wait
    assert phases.waited() == pytest.approx(0.03)
    assert phases.waited() == 0.0
    FakeEvent.done = 250.0
    assert phases.waited() == pytest.approx(0.05)


def train(rank: int) -> tuple[float, float]:
    """A few steps, in which rank 1 is slow; the times of a whole step and of its own part."""
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    progress = progress_of(rank, total_steps=6, log_every=100)
    progress.watch(model, optimizer)
    for step in range(1, 7):
        if rank == 1:
            threading.Event().wait(SLOW)
        loss = model(torch.ones(2, 4)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.step(step, epoch=0, loss=loss.item(), learning_rate=0.1)
    beat = progress.heartbeat.beat
    return beat.step_seconds, beat.own_seconds


@pytest.mark.slow
def test_ranks_that_wait_for_a_slow_one_are_as_slow_but_not_by_themselves() -> None:
    """DDP waits at the end of backward, after our callback: else the fast rank's wait would count as its own."""
    (fast, fast_own), (slow, slow_own) = run(train, 2)
    assert fast >= SLOW / 2
    assert slow_own >= SLOW
    assert slow >= slow_own
    assert fast_own < SLOW / 2
