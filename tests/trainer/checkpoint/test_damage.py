"""Checkpoints are whole or not there; what is damaged is left out by name (known failure A23)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.config import ResumeConfig
from rankzero.errors import CheckpointError
from tests.trainer.checkpoint.scene import (
    COMMON_FILE,
    DATA_FILE,
    METADATA_FILE,
    names,
    resumed,
    save_steps,
    tracked,
)

FILES = [DATA_FILE, COMMON_FILE, METADATA_FILE]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def delete(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(cut, "bytes, not"), (flip_a_bit, "does not match its checksum"), (empty, "0 bytes"), (delete, "is missing")],
)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used(
    tmp_path: Path, damage: Callable[[Path], None], reason: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = save_steps(tmp_path, 1, 2)
    damage(next(iter(checkpoints)) / name)
    assert resumed(tmp_path) == (1, 1.0)
    said = capsys.readouterr().out
    assert f"step-0000000002 is left out: {name} " in said
    assert reason in said


def no_manifest(path: Path) -> None:
    (path / contract.MANIFEST_FILE).unlink()


def empty_manifest(path: Path) -> None:
    (path / contract.MANIFEST_FILE).write_text("")


def cut_manifest(path: Path) -> None:
    (path / contract.MANIFEST_FILE).write_text("{")


def manifest_is_a_folder(path: Path) -> None:
    (path / contract.MANIFEST_FILE).unlink()
    (path / contract.MANIFEST_FILE).mkdir()


def unreadable(path: Path) -> None:
    """A file whose first byte cannot be read (EIO), as on a failing disk: address 0 of this process."""
    (path / DATA_FILE).unlink()
    (path / DATA_FILE).symlink_to("/proc/self/mem")
    document = {"format": 2, "files": {DATA_FILE: {"size": 0, "crc32": ["00000000"]}}}
    (path / contract.MANIFEST_FILE).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (no_manifest, "it has no manifest"),
        (empty_manifest, "its manifest is not JSON"),
        (cut_manifest, "its manifest is not JSON"),
        (manifest_is_a_folder, "it cannot be read: Is a directory"),
        (unreadable, "it cannot be read: Input/output error"),
    ],
)
def test_a_checkpoint_without_a_good_manifest_is_left_out_with_the_reason(
    tmp_path: Path, damage: Callable[[Path], None], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = save_steps(tmp_path, 1, 2)
    damage(next(iter(checkpoints)))
    assert resumed(tmp_path) == (1, 1.0)
    assert f"step-0000000002 is left out: {reason}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ([], "its manifest has another form"),
        ({}, "its manifest has another form"),
        ({"format": 2, "files": []}, "its manifest names no file"),
        ({"format": 2, "files": {}}, "its manifest names no file"),
        ({"format": 2, "files": {DATA_FILE: {}}}, "its manifest has another form"),
        ({"format": 2, "files": {DATA_FILE: 5}}, "its manifest has another form"),
        ({"files": {"state.pt": {}}}, "its format is 1, and this version of rankzero reads 2"),
        (None, "it has no manifest"),
    ],
)
def test_a_manifest_of_another_form_is_a_reason_and_no_traceback(tmp_path: Path, manifest: Any, reason: str) -> None:
    checkpoints = save_steps(tmp_path, 1)
    newest = next(iter(checkpoints))
    (newest / contract.MANIFEST_FILE).write_text(json.dumps(manifest))
    assert checkpoints.verify(newest) == reason


def test_a_checksum_more_or_less_than_there_are_blocks_is_another_form(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 1)
    newest = next(iter(checkpoints))
    document = json.loads((newest / contract.MANIFEST_FILE).read_text())
    document["files"][DATA_FILE]["crc32"] = []
    (newest / contract.MANIFEST_FILE).write_text(json.dumps(document))
    assert checkpoints.verify(newest)


def test_where_all_are_damaged_the_run_begins_anew_only_when_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A volume that cannot be read today must not cost weeks: the first saves of a new run would replace them."""
    for path in save_steps(tmp_path, 1, 2):
        cut(path / DATA_FILE)
    with pytest.raises(
        CheckpointError, match=r"none of the run's checkpoints in .* can be trusted: step-0000000002, step-0"
    ):
        resumed(tmp_path)
    assert capsys.readouterr().out.count("is left out") == 2
    assert resumed(tmp_path, resume=ResumeConfig(from_="none")) == (0, 0.0)


@pytest.mark.parametrize("keep", [1, 2])
def test_what_has_just_been_saved_stays_though_damaged_ones_look_newer(tmp_path: Path, keep: int) -> None:
    """A run whose newest checkpoints are damaged goes on from an older one and saves lower steps again."""
    for path in save_steps(tmp_path, 200, 300):
        cut(path / DATA_FILE)
    checkpoints = save_steps(tmp_path, 50, keep=keep)
    assert [path.name for path in checkpoints] == ["step-0000000050"]
    assert resumed(tmp_path) == (50, 50.0)


def test_a_step_that_is_saved_again_replaces_the_one_before(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 1)
    cut(next(iter(checkpoints)) / DATA_FILE)
    assert [checkpoints.verify(path) for path in save_steps(tmp_path, 1)] == [""]
    assert names(checkpoints) == ["latest.json", "step-0000000001"]


def test_a_large_file_is_summed_in_blocks_and_the_damaged_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankzero.sums.BLOCK", 1000)
    checkpoints, model = tracked(tmp_path, size=2000)
    model.value = 3
    checkpoints.save(1)
    newest = next(iter(checkpoints))
    content = bytearray((newest / DATA_FILE).read_bytes())
    assert checkpoints.verify(newest) == ""
    content[5500] ^= 1
    (newest / DATA_FILE).write_bytes(content)
    assert checkpoints.verify(newest) == f"{DATA_FILE} does not match its checksum (bytes from 5000)"
