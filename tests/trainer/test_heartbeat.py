"""Heartbeats in memory: whole, cheap, and there for whoever reads them."""

from __future__ import annotations

import math
import multiprocessing
import time
from pathlib import Path

from rankzero import heartbeat
from rankzero.heartbeat import Heartbeat, Phase
from tests.waiting import until


def beat_for_ever(path: Path) -> None:
    own = Heartbeat(path)
    step = 0
    while True:
        step += 1
        own.step(step, epoch=step, loss=float(step), samples=1)


def test_a_reader_in_another_process_never_sees_half_a_beat(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    process = multiprocessing.get_context("spawn").Process(target=beat_for_ever, args=(path,))
    process.start()
    try:
        until(lambda: (seen := heartbeat.read(path)) is not None and seen.step > 0, timeout=30, what="a beat")
        for _ in range(5000):
            beat = heartbeat.read(path)
            assert beat is not None
            assert beat.step == beat.epoch == beat.loss
    finally:
        process.kill()
        process.join()
    last = heartbeat.read(path)  # and what a killed rank said last is still there
    assert last is not None
    assert last.step > 0


def test_time_is_counted_by_phase_and_phases_nest(tmp_path: Path) -> None:
    own = Heartbeat(tmp_path / "beat")
    with own.phase(Phase.EVALUATION):
        phases = [own.beat.phase]
        with own.phase(Phase.DATA):
            phases.append(own.beat.phase)
        phases.append(own.beat.phase)
    phases.append(own.beat.phase)
    own.step(1, epoch=0, loss=1.0)
    phases.append(own.beat.phase)
    assert phases == [Phase.EVALUATION, Phase.DATA, Phase.EVALUATION, Phase.STARTUP, Phase.TRAINING]
    assert set(own.beat.seconds) == {"startup", "data", "evaluation"}


def test_the_last_checkpoint_is_timed_also_where_it_fails(tmp_path: Path) -> None:
    own = Heartbeat(tmp_path / "beat")
    began = time.monotonic()
    try:
        with own.phase(Phase.CHECKPOINT):
            raise OSError
    except OSError:
        pass
    assert 0 < own.beat.save_seconds <= time.monotonic() - began


def test_a_loss_that_is_no_number_is_null_in_json(tmp_path: Path) -> None:
    own = Heartbeat(tmp_path / "beat")
    own.step(1, epoch=0, loss=math.nan)
    assert own.beat.record()["loss"] is None


def test_before_the_first_step_a_record_names_no_step(tmp_path: Path) -> None:
    assert "step" not in Heartbeat(tmp_path / "beat").beat.record()


def test_what_is_no_heartbeat_is_none(tmp_path: Path) -> None:
    assert heartbeat.read(tmp_path / "none") is None
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "other").write_bytes(b"x" * 1000)
    assert heartbeat.read(tmp_path / "short") is None
    assert heartbeat.read(tmp_path / "other") is None


def test_a_step_costs_next_to_nothing(tmp_path: Path) -> None:
    """Less than 1 % of a step of 20 ms, with a phase switch on each side."""
    own = Heartbeat(tmp_path / "beat")
    began = time.process_time()
    for step in range(1, 1001):
        with own.phase(Phase.DATA):
            pass
        own.step(step, epoch=0, loss=0.5)
    assert (time.process_time() - began) / 1000 < 0.0002
