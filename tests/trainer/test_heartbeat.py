"""Heartbeats in memory: whole, cheap, and there for whoever reads them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankzero import contract, heartbeat
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
        until(lambda: (seen := heartbeat.read(path)) is not None and seen.step > 0, what="a beat")
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


def test_the_last_checkpoint_is_timed_also_where_it_fails(tmp_path: Path) -> None:
    own = Heartbeat(tmp_path / "beat")
    began = time.monotonic()
    try:
        with own.phase(Phase.CHECKPOINT):
            raise OSError
    except OSError:
        pass
    assert 0 < own.beat.save_seconds <= time.monotonic() - began


def test_all_time_before_the_first_step_is_the_start(tmp_path: Path) -> None:
    """The first batch and compilation are no data wait and no training."""
    own = Heartbeat(tmp_path / "beat")
    with own.phase(Phase.DATA):
        pass
    with own.phase(Phase.FORWARD):
        pass
    own.step(1, epoch=0, loss=1.0)
    assert set(own.beat.seconds) == {"startup"}


def test_the_step_time_is_known_after_a_few_steps(tmp_path: Path) -> None:
    own = Heartbeat(tmp_path / "beat")
    known = []
    for step in range(1, 6):
        own.step(step, epoch=0, loss=1.0)
        known.append(own.beat.step_seconds > 0)
    assert known == [False, False, False, True, True]


def test_a_rank_is_watched_once_it_has_said_that_it_will_report(tmp_path: Path) -> None:
    own = Heartbeat(tmp_path / "beat")
    assert not own.beat.watched
    own.begin(total_steps=10, resumed_from=0, saves_on_stop=False)
    assert own.beat.watched


def test_a_process_that_a_rank_has_started_does_not_speak_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.ENV_ATTEMPT_DIR, str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(heartbeat, "_current", None)
    heartbeat.current().step(5, epoch=0, loss=1.0)
    child = "from rankzero import heartbeat; heartbeat.current().step(9, epoch=0, loss=1.0)"
    subprocess.run([sys.executable, "-c", child], check=True)
    seen = heartbeat.read(tmp_path / contract.heartbeat_file(3))
    assert seen is not None
    assert (seen.step, seen.pid) == (5, os.getpid())


@pytest.mark.parametrize(("folder", "rank"), [("/no/such/folder", "0"), ("", "0"), ("/tmp", ""), ("/tmp", "x")])  # noqa: S108
def test_a_rank_that_cannot_be_seen_trains_all_the_same(
    folder: str, rank: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(contract.ENV_ATTEMPT_DIR, folder)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(heartbeat, "_current", None)
    heartbeat.current().step(1, epoch=0, loss=1.0)
    assert heartbeat.current().beat.step == 1
    assert ("cannot see this rank's progress" in capfd.readouterr().err) == (folder == "/no/such/folder")


def test_no_room_is_an_error_at_once_and_not_a_crash_at_the_first_beat(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path; from rankzero.heartbeat import Heartbeat\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: Heartbeat(Path(sys.argv[1]))\nexcept OSError: sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "beat")], check=False).returncode == 7


def test_what_is_no_heartbeat_is_none(tmp_path: Path) -> None:
    assert heartbeat.read(tmp_path / "none") is None
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "other").write_bytes(b"x" * 1000)
    own = Heartbeat(tmp_path / "odd")
    own._record.phase = 99
    own._publish()
    assert heartbeat.read(tmp_path / "odd") is None
    assert heartbeat.read(tmp_path / "short") is None
    assert heartbeat.read(tmp_path / "other") is None


def test_a_step_costs_next_to_nothing(tmp_path: Path) -> None:
    """Some 30 us with a phase switch on each side; the bound is for a slow and busy machine."""
    own = Heartbeat(tmp_path / "beat")
    began = time.process_time()
    for step in range(1, 1001):
        with own.phase(Phase.DATA):
            pass
        own.step(step, epoch=0, loss=0.5)
    assert (time.process_time() - began) / 1000 < 0.001
