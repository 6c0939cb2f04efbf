"""The records outlive the launcher that wrote them, whatever moment it died in."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.files import read_json, write_json
from rankzero.launch.budget import give_up
from rankzero.launch.causes import POD, STOPPED, Cause
from rankzero.launch.records import Records
from tests.waiting import PATIENCE


def records(folder: Path, uid: str = "a") -> Records:
    found = Records(folder, "run", "main", uid)
    found.load({})
    return found


def test_a_record_that_could_not_be_written_is_written_with_the_next(tmp_path: Path) -> None:
    first = records(tmp_path)
    first.open_attempt([])
    first.save()
    first.close_attempt(Cause(POD, "gone"), {})  # the volume is full now: no save
    first.open_attempt([])
    first.save()
    document = read_json(tmp_path / contract.attempt_file(1))
    assert document is not None
    assert document["cause"]["reason"] == "gone"


def test_an_end_that_was_never_written_does_not_stop_the_next_rank_0(tmp_path: Path) -> None:
    for _ in range(2):
        first = records(tmp_path)
        first.open_attempt([])
        first.save()
    later = records(tmp_path)
    assert later.attempts[0]["cause"]["reason"] == "how it ended was not recorded"
    assert later.close_lost({}, "")
    assert give_up(later.attempts, 1) == ""


def test_a_success_whose_outcome_was_not_written_is_a_success_for_the_next_rank_0(tmp_path: Path) -> None:
    first = records(tmp_path)
    first.open_attempt([])
    first.close_attempt(None, {})
    first.save()
    later = records(tmp_path, "b")
    assert later.has_succeeded()
    assert not later.close_lost({}, "")
    assert give_up(later.attempts, 1) == ""


def test_a_damaged_record_is_passed_over(tmp_path: Path) -> None:
    first = records(tmp_path)
    first.open_attempt([])
    first.save()
    (tmp_path / contract.attempt_file(1)).write_text("{")
    assert records(tmp_path).attempts == []


def test_only_the_pod_that_took_rank_0_over_last_ends_the_run(tmp_path: Path) -> None:
    old = records(tmp_path, "old")
    assert old.is_owner()
    new = records(tmp_path, "new")
    assert new.is_owner()
    assert not old.is_owner()


def test_a_write_that_hung_does_not_come_back_over_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old file server that is back again: the launcher gave that write up long ago."""
    hanging, back, real = threading.Event(), threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        if not hanging.is_set():
            hanging.set()
            back.wait(PATIENCE)
        real(descriptor)

    first = records(tmp_path)
    first.open_attempt([])
    monkeypatch.setattr(os, "fsync", fsync)
    old = threading.Thread(target=first.save)
    old.start()
    assert hanging.wait(PATIENCE)
    first.close_attempt(Cause(POD, "gone"), {})
    new = threading.Thread(target=first.save)
    new.start()
    new.join(0.5)  # where it waits for the old one this is in vain, else it has written
    back.set()
    old.join(20)
    new.join(20)
    document = read_json(tmp_path / contract.attempt_file(1))
    assert document is not None
    assert document["cause"]["reason"] == "gone"


def test_more_than_9999_attempts_are_in_order(tmp_path: Path) -> None:
    folder = tmp_path / contract.ATTEMPTS_DIR
    folder.mkdir()
    for number in (10_000, 9_999, 2):
        write_json(tmp_path / contract.attempt_file(number), {"attempt": number, "started": 1.0, "nodes": []})
    later = records(tmp_path)
    assert [record["attempt"] for record in later.attempts] == [2, 9_999, 10_000]
    assert later.close_lost({}, "")
    assert later.open_attempt([]) == 10_001


def test_why_an_attempt_was_about_to_end_is_known_to_the_successor_of_a_rank_0_that_was_killed(tmp_path: Path) -> None:
    """Known failure A24: of most preempted pods nothing is left but SIGKILL."""
    first = records(tmp_path)
    first.open_attempt([{"node_rank": 0, "uid": "a"}])
    first.note_ending(Cause(STOPPED, "test-0 (node rank 0) is leaving: its pod is being stopped", 0))
    first.save()
    later = records(tmp_path, "b")
    assert later.close_lost({}, "")
    assert later.attempts[0]["cause"]["kind"] == STOPPED
    assert "ending" not in later.attempts[0]
    first.open_attempt([])
    first.save()
    assert records(tmp_path, "c").attempts[0]["cause"]["reason"].startswith("test-0 (node rank 0) is leaving")


def test_what_was_noted_before_the_end_is_not_kept_beside_it(tmp_path: Path) -> None:
    first = records(tmp_path)
    first.open_attempt([])
    first.note_ending(Cause(STOPPED, "leaving"))
    first.close_attempt(Cause(POD, "gone"), {})
    assert first.attempts[0]["cause"]["reason"] == "gone"
    assert "ending" not in first.attempts[0]
