"""The records outlive the launcher that wrote them, whatever moment it died in."""

from __future__ import annotations

from pathlib import Path

from rankzero import contract
from rankzero.files import read_json
from rankzero.launch.budget import give_up
from rankzero.launch.causes import POD, Cause
from rankzero.launch.records import Records


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
