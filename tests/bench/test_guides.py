"""The guides show what the result files hold, and say so where there is none."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from bench import result_file
from bench.recovery import summary
from bench.recovery.__main__ import head
from bench.recovery.events import EVENTS
from bench.recovery.forms import KEYS
from rankzero.errors import ConfigError
from scripts.generate import files, measured

BEFORE, AFTER = "# A guide\n\nWritten by hand, before.\n\n", "\n\nWritten by hand, after.\n"
MARKS = measured.BEGIN.format(source="bench/results/recovery.json"), measured.END.format(name="recovery")
FACTS = {"kubernetes": "v1.37.2", "torch": "2.13.0", "python": "3.11.2"}


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A guide with a place for the table, and no result file beside it."""
    path = tmp_path / "recovery.md"
    path.write_text(BEFORE + "\n\nof another day\n\n".join(MARKS) + AFTER, encoding="utf-8")
    monkeypatch.setattr(files, "RECOVERY", path)
    monkeypatch.setattr(result_file, "FOLDER", tmp_path / "results")
    return path


def test_a_guide_without_a_result_says_how_to_get_one(guide: Path) -> None:
    assert "Not measured yet" in measured.recovery()
    guide.write_text(measured.recovery())
    assert measured.recovery() == guide.read_text()  # and stays the same when it is generated again


def test_the_guide_has_the_times_the_targets_and_what_was_chosen(guide: Path) -> None:  # noqa: ARG001
    options = argparse.Namespace(repetitions=2, give_up=150.0)
    samples: summary.Samples = {form: {event: [2.0, 4.0] for event in EVENTS} for form in KEYS}
    samples["torchrun-c10d"]["worker_killed"] = [None, None]
    found = {**head(options, "registry.example.com/trainer:1", FACTS), **summary.document(samples, 150.0)}
    result_file.write("recovery", found)
    text = measured.recovery()
    assert text.startswith(f"{BEFORE}{MARKS[0]}\n\n| seconds |")
    assert text.endswith(f"\n\n{MARKS[1]}{AFTER}")
    assert "of another day" not in text
    assert "| pod 1 deleted, to the next step | 3.0 (2.0 to 4.0) | 3.0 (2.0 to 4.0), 1.0 x |" in text
    assert ">150 (>150 to >150), >50.0 x |" in text
    assert "| worker_killed_s | 1.5 | 3.0 | missed |" in text
    assert "image `trainer:1`" in text
    assert "registry.example.com" not in text
    assert "torch 2.13.0" in text


def test_a_guide_that_lost_its_place_for_the_table_is_an_error(guide: Path) -> None:
    guide.write_text("# no marks\n")
    with pytest.raises(ConfigError, match="0 places for recovery"):
        measured.recovery()


def entry(seconds: float, target: float | None, *causes: str, passed: bool = True) -> dict[str, Any]:
    machine = {"measured": "2026-01-02 03:04", "cores": 2, "memory_gib": 8.0, "kernel": "6.18"}
    result = {"passed": passed, "seconds": seconds, "since_struck": None, "target": target, "cause": causes}
    return {**result, "image": "trainer:1", "machine": machine}


def test_the_table_of_drills_shows_targets_that_were_missed_and_quotes_records_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_file, "FOLDER", tmp_path / "results")
    drills = {
        "worker-killed": entry(0.7, 1.5, "worker: was ended\nby | SIGKILL", "succeeded"),
        "pod-0-deleted": entry(12.3, 10, "stopped: is leaving"),
        "pod-1-deleted": {**entry(4.0, 10, "stopped: is leaving", passed=False), "since_struck": 7.0},
    }
    result_file.write("drills", {"drills": drills, "targets": {}})
    text = measured.drills()
    assert "| 15 s | 1.5 s | 0.7 | passed |" in text
    assert "| 30 s | 10 s | 12.3 | passed, **target missed** |" in text
    assert "| 30 s | 10 s | 4.0 (7.0 since it was struck) | **fell short** |" in text
    assert "- `worker-killed`: `worker: was ended by | SIGKILL`; `succeeded`" in text
    assert "2 cores, 8 GiB, Linux 6.18; image `trainer:1`" in text
