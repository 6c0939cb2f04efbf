"""Old attempts do not fill the checkpoint volume."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankzero import contract
from rankzero.launch.retention import remove_old
from tests.launch.conftest import MakeGroup
from tests.waiting import until

pytestmark = pytest.mark.slow


def attempts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_logs_and_stacks_of_the_last_attempts_and_of_the_first_are_kept(tmp_path: Path) -> None:
    for attempt in (1, 2, 3, 9_998, 9_999, 10_000, 10_001):
        for name in (contract.log_file(attempt, 0), f"{contract.evidence_dir(attempt)}/{contract.stack_file(0)}"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / contract.attempt_file(attempt)).touch()
    (tmp_path / contract.LOGS_DIR / "attempt-2-of-mine").mkdir()
    remove_old(tmp_path, 10_000, 2)
    assert attempts(tmp_path / contract.LOGS_DIR) == [
        "attempt-0001",
        "attempt-10000",
        "attempt-10001",
        "attempt-2-of-mine",
        "attempt-9999",
    ]
    records = ["0001.json", "0002.json", "0003.json", "10000.json", "10001.json", "9998.json", "9999.json"]
    assert attempts(tmp_path / contract.ATTEMPTS_DIR) == sorted(["0001", "9999", "10000", "10001", *records])


def test_a_run_without_folders_yet_has_nothing_to_remove(tmp_path: Path) -> None:
    remove_old(tmp_path, 100, 1)
    assert list(tmp_path.iterdir()) == []


def test_rank_0_removes_them_when_an_attempt_begins(make_group: MakeGroup) -> None:
    group = make_group("advance", "0", "7", nodes=1, keepLogs=1).start()
    until(lambda: group.attempt(4), what="a fourth attempt")
    folder = group.state_dir / contract.LOGS_DIR
    until(lambda: not (folder / "attempt-0003").exists(), what="the logs of the third are gone")
    assert "attempt-0001" in attempts(folder)
    assert "attempt-0002" not in attempts(folder)
