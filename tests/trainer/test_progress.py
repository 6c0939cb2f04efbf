from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.launch.records import Records
from rankzero.train.progress import Progress, report_result


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(contract.ENV_STATE_DIR, str(tmp_path))
    monkeypatch.setenv(contract.ENV_ATTEMPT, "2")
    return tmp_path


def test_the_launcher_finds_in_its_record_what_rank_0_reported(state_dir: Path) -> None:
    records = Records(state_dir)
    assert records.open_attempt([]) == 1
    assert records.open_attempt([]) == 2
    progress = Progress(0, total_steps=12, resumed_from=10, log_every=1)
    for step in (11, 12):
        progress.step(step, epoch=0, loss=0.5, learning_rate=0.1)
    closed = records.close_attempt(2, cause=None)
    assert (closed["resumed_from"], closed["first_step"], closed["last_step"]) == (10, 11, 12)
    assert closed["started"] <= closed["first_step_time"] <= closed["last_time"]
    assert "first_step" not in records.close_attempt(1, cause=None)  # the heartbeat belongs to attempt 2


def test_rank_0_alone_prints_and_writes_metrics(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        progress = Progress(rank, total_steps=100, resumed_from=0, log_every=10)
        for step in range(1, 21):
            progress.step(step, epoch=0, loss=0.5, learning_rate=0.1)
    steps = [json.loads(line)["step"] for line in (state_dir / contract.METRICS_FILE).read_text().splitlines()]
    assert steps == [1, 10, 20]
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert (state_dir / contract.progress_file(1)).exists()


def test_a_result_becomes_part_of_the_outcome(state_dir: Path) -> None:
    report_result(test_accuracy=0.97)
    outcome = Records(state_dir).write_outcome("succeeded", "done", 0)
    assert outcome["result"] == {"test_accuracy": 0.97}


def test_a_script_without_a_launcher_only_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(contract.ENV_STATE_DIR, raising=False)
    monkeypatch.chdir(tmp_path)
    Progress(0, total_steps=1, resumed_from=0, log_every=1).step(1, epoch=0, loss=1.0, learning_rate=0.1)
    report_result(x=1.0)
    assert list(tmp_path.iterdir()) == []
