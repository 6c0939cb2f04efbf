"""Copies of checkpoints on a real S3 server, in parts where files are large."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rankzero.config import ResumeConfig
from rankzero.errors import CheckpointError
from rankzero.transfer import PIECE, Transfers
from tests.trainer.checkpoint.scene import DATA_FILE, resumed, save_steps, tracked

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500), pytest.mark.usefixtures("s3")]

NUMBERS = 5 * PIECE // 8 + 1
"""Of four bytes each: three parts, the last one smaller."""


def test_a_run_goes_on_from_the_newest_copy_and_older_ones_are_gone(tmp_path: Path) -> None:
    url = "s3://bucket/checkpoints"
    for step in (1, 2, 3):
        checkpoints, model = tracked(tmp_path / "mnist", NUMBERS, mirror=url, keep=2)
        checkpoints.resume()
        model.value = step
        checkpoints.save(step)
        checkpoints.close()
    files = json.loads((checkpoints.layout.path(3) / "MANIFEST.json").read_text())["files"]
    assert files[DATA_FILE]["size"] > 2 * PIECE
    found, problem = Transfers().run("look", f"{url}/mnist")
    assert (found, problem) == ({"whole": ["step-0000000002", "step-0000000003"], "parts": []}, "")
    shutil.rmtree(tmp_path / "mnist")
    again, model = tracked(tmp_path / "mnist", NUMBERS, mirror=url)
    assert (again.resume(), model.value) == (3, 3.0)
    assert [again.verify(path) for path in again] == [""]
    source = ResumeConfig(from_=f"{url}/mnist/step-0000000002")
    other, model = tracked(tmp_path / "other", NUMBERS, resume=source)
    assert (other.resume(), model.value) == (2, 2.0)


def test_credentials_that_are_not_right_end_a_new_run_and_are_a_warning_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-one")
    with pytest.raises(CheckpointError, match="cannot look for checkpoints in s3://bucket/denied/run: ") as found:
        resumed(tmp_path / "run", mirror="s3://bucket/denied")
    assert "AWS_SECRET_ACCESS_KEY" in found.value.hint
    save_steps(tmp_path / "run", 1, mirror="s3://bucket/denied")
    said = capsys.readouterr().out
    assert "warning: the checkpoint of step 1 was not copied to s3://bucket/denied/run: " in said
    assert "AWS_SECRET_ACCESS_KEY" in said
    assert "a-wrong-one" not in said + str(found.value)
