from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from rankzero import contract, heartbeat
from rankzero.config import ProgressConfig, TrainConfig
from rankzero.errors import ConfigError
from rankzero.files import read_json
from rankzero.heartbeat import Heartbeat, Phase
from rankzero.train import memory
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.progress import report_result
from tests.trainer.reporting import progress as progress_of
from tests.trainer.test_trackers import written


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(contract.ENV_STATE_DIR, str(tmp_path))
    monkeypatch.setenv(contract.ENV_ATTEMPT, "2")
    monkeypatch.setattr(heartbeat, "_current", Heartbeat(tmp_path / contract.heartbeat_file(0)))
    return tmp_path


def test_a_heartbeat_says_how_far_the_attempt_came_and_from_where(state_dir: Path) -> None:
    """What the launcher takes over into its record of the attempt; test_mnist.py sees it do so."""
    progress = progress_of(total_steps=12, resumed_from=10)
    for step in (11, 12):
        progress.step(step, epoch=0, loss=0.5, learning_rate=0.1, samples=32)
    beat = heartbeat.read(state_dir / contract.heartbeat_file(0))
    assert beat is not None
    assert (beat.resumed_from, beat.first_step, beat.step, beat.total_steps, beat.samples) == (10, 11, 12, 12, 64)
    assert beat.first_step_time <= beat.time


def test_the_wait_for_data_is_told_from_training(state_dir: Path) -> None:
    progress = progress_of(total_steps=3)
    seen = []
    for batch in progress.batches([1, 2, 3]):
        beat = heartbeat.read(state_dir / contract.heartbeat_file(0))
        assert beat is not None
        seen.append(beat.phase)
        progress.step(batch, epoch=0, loss=0.5, learning_rate=0.1)
    assert seen == [Phase.STARTUP, Phase.TRAINING, Phase.TRAINING]
    assert progress.heartbeat.beat.seconds["data"] > 0


def test_rank_0_alone_prints_and_writes_metrics(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        progress = progress_of(rank, total_steps=100, log_every=10)
        for step in range(1, 21):
            progress.step(step, epoch=0, loss=0.5, learning_rate=0.1)
    steps = [json.loads(line)["step"] for line in (state_dir / contract.METRICS_FILE).read_text().splitlines()]
    assert steps == [1, 10, 20]
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_line_of_metrics_says_how_fast_where_the_time_went_and_what_memory_is_held(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = progress_of(total_steps=3, data_ranks=4)
    for step, _ in enumerate(progress.batches([1, 2, 3]), 1):
        progress.step(step, epoch=0, loss=0.5, learning_rate=0.1, samples=32, tokens=320, gradient_norm=1.5)
    first, second, _ = map(json.loads, (state_dir / contract.METRICS_FILE).read_text().splitlines())
    assert first.keys() == {
        "time", "attempt", "step", "epoch", "loss", "learning_rate", "gradient_norm", "memory",
    }  # fmt: skip
    assert second.keys() == first.keys() | {"steps_per_second", "samples_per_second", "tokens_per_second", "shares"}
    assert second["gradient_norm"] == 1.5
    assert second["samples_per_second"] == pytest.approx(second["steps_per_second"] * 32 * 4, rel=1e-3)
    assert second["tokens_per_second"] == pytest.approx(second["steps_per_second"] * 320 * 4, rel=1e-3)
    assert second["shares"].keys() == {"data", "training"}
    assert sum(second["shares"].values()) == pytest.approx(1, abs=1e-3)
    assert second["memory"]["host"] > 2**20
    assert "samples/s" in capsys.readouterr().out


def test_figures_reach_the_trackers_with_flat_names_and_only_numbers(state_dir: Path) -> None:
    settings = ProgressConfig(tensorboard=True)
    progress = progress_of(total_steps=1, settings=settings)
    progress.step(1, epoch=0, loss=math.nan, learning_rate=0.1)
    [(step, figures)] = written(state_dir)
    assert step == 1
    assert figures.keys() == {"epoch", "learning_rate", "memory/host", "memory/host_peak"}


def test_other_ranks_report_to_no_tracker(state_dir: Path) -> None:
    progress = progress_of(1, total_steps=1, settings=ProgressConfig(tensorboard=True))
    progress.step(1, epoch=0, loss=1.0, learning_rate=0.1)
    assert not (state_dir / contract.TENSORBOARD_DIR).exists()


@pytest.mark.usefixtures("state_dir")
def test_a_rank_that_keeps_ever_more_memory_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure A22. Any rank may leak, so any rank says it, in its own log."""
    progress = progress_of(3, total_steps=100)
    for epoch in range(7):
        monkeypatch.setattr(memory, "usage", lambda epoch=epoch: {"host": 2**30 + epoch * 2**27})
        progress.step(epoch + 1, epoch=epoch, loss=1.0, learning_rate=0.1)
    [said] = capsys.readouterr().out.splitlines()
    assert said.startswith("warning: the memory of rank 3 has grown 4 times in a row, from 1152 to 1664 MiB")


@pytest.mark.usefixtures("state_dir")
def test_a_step_costs_far_less_than_one_is_worth() -> None:
    """A tenth of the smallest step that counts, 20 ms; a hundredth is the target: bench/results/progress.json."""
    model = nn.Linear(2, 1)
    progress = progress_of(total_steps=10**6, log_every=10, settings=ProgressConfig(tensorboard=True))
    progress.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    steps = 300
    began = time.process_time()
    for step, _ in enumerate(progress.batches(range(steps)), 1):
        progress.step(step, epoch=0, loss=0.5, learning_rate=0.1, samples=32)
    assert (time.process_time() - began) / steps < 0.002


def test_a_result_is_left_for_the_outcome(state_dir: Path) -> None:
    report_result(test_accuracy=0.97)
    assert read_json(state_dir / contract.RESULT_FILE) == {"test_accuracy": 0.97}


def test_figures_that_are_no_numbers_are_null_in_what_others_read(state_dir: Path) -> None:
    """Python's NaN is not JSON: jq, Go and browsers refuse the whole document."""
    progress = progress_of(total_steps=1)
    progress.step(1, epoch=0, loss=math.nan, learning_rate=math.inf)
    report_result(loss=math.nan, best=-math.inf, steps=1)
    metrics, result = ((state_dir / name).read_text() for name in (contract.METRICS_FILE, contract.RESULT_FILE))
    assert "NaN" not in metrics + result
    assert "Infinity" not in metrics + result
    assert json.loads(metrics).items() >= {"step": 1, "loss": None, "learning_rate": None}.items()
    assert json.loads(result) == {"loss": None, "best": None, "steps": 1}


def test_a_script_without_a_launcher_only_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(contract.ENV_STATE_DIR, raising=False)
    monkeypatch.chdir(tmp_path)
    progress_of(total_steps=1).step(1, epoch=0, loss=1.0, learning_rate=0.1)
    report_result(x=1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_volume_that_refuses_progress_is_said_once_and_training_goes_on(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state_dir / contract.METRICS_FILE).symlink_to("/dev/full")  # every write: no space left on device
    progress = progress_of(total_steps=3)
    for step in (1, 2, 3):
        progress.step(step, epoch=0, loss=0.5, learning_rate=0.1)
    said = capsys.readouterr().out.splitlines()
    assert len([line for line in said if line.startswith("step ")]) == 3
    assert len([line for line in said if "progress cannot be recorded" in line]) == 1


def test_a_state_directory_that_nobody_has_made_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for a script that torchrun starts, whose first line would be lost."""
    monkeypatch.setenv(contract.ENV_STATE_DIR, str(tmp_path / "runs/1"))
    progress_of(total_steps=1).step(1, epoch=0, loss=0.5, learning_rate=0.1)
    assert (tmp_path / "runs/1" / contract.METRICS_FILE).exists()
    assert "recorded" not in capsys.readouterr().out


@pytest.mark.parametrize("place", ["/proc/nowhere/run", "file", "file/run"])
def test_a_state_directory_that_can_never_be_made_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """And not by the last save, when all is trained."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(contract.ENV_STATE_DIR, str(tmp_path / place))
    with pytest.raises(ConfigError, match=f"{contract.ENV_STATE_DIR} is {tmp_path / place}, which cannot be made"):
        progress_of(total_steps=1)
    with pytest.raises(ConfigError, match="cannot be made"), Checkpoints.of_run(TrainConfig()):
        pass


def test_a_run_with_nothing_left_to_train_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Its script ends at once and well, which looks like a fault."""
    progress_of(total_steps=10, resumed_from=10)
    assert "step 10 is reached, and these settings and ranks make 10 in all" in capsys.readouterr().out
    progress_of(total_steps=10, resumed_from=9)
    progress_of(1, total_steps=10, resumed_from=10)
    assert not capsys.readouterr().out


def test_metrics_are_written_again_once_there_is_room(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = state_dir / contract.METRICS_FILE
    metrics.symlink_to("/dev/full")
    progress = progress_of(total_steps=2)
    progress.step(1, epoch=0, loss=0.5, learning_rate=0.1)
    metrics.unlink()
    progress.step(2, epoch=0, loss=0.5, learning_rate=0.1)
    assert "No space left on device" in capsys.readouterr().out
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [2]
