"""Checkpoints on a disk of the node first, copied beside the training: one process."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract, heartbeat
from rankzero.config import CheckpointConfig
from rankzero.errors import CheckpointError, ConfigError
from rankzero.train.checkpoint import Checkpoints, copying
from rankzero.train.checkpoint.copying import shared_out
from rankzero.train.checkpoint.manifest import Files
from rankzero.train.checkpoint.tier import Tier
from tests.trainer.checkpoint.scene import DATA_FILE, names, resumed, save_steps, tracked
from tests.waiting import until


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The node's own."""
    return tmp_path / "disk"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """What all nodes share."""
    return tmp_path / "volume"


class Gate:
    """Holds the first copy up before its first byte until it is opened, or the copy is no longer wanted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self.begun = threading.Event(), threading.Event()
        copy = copying.copy

        def held(source: Path, target: Path, checksums: list[str], is_unwanted: Callable[[], bool]) -> bool:
            self.begun.set()
            until(lambda: self._open.is_set() or is_unwanted(), what="the volume's answer")
            self._open.set()
            return copy(source, target, checksums, is_unwanted)

        monkeypatch.setattr(copying, "copy", held)

    def open(self) -> None:
        """Let all go on."""
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A slow shared volume."""
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def local_steps(disk: Path) -> list[str]:
    """What is finished on the node's disk."""
    return sorted(path.name for path in disk.glob("*/checkpoints/step-*"))


def saved_without_close(volume: Path, disk: Path, *steps: int, **settings: Any) -> Checkpoints:
    """As when the process dies after the last copy: what is on the node's disk stays there."""
    checkpoints, model = tracked(volume, local_path=str(disk), **settings)
    for step in steps:
        model.value = step
        checkpoints.save(step, wait=True)
    return checkpoints


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_copied_is_a_checkpoint_as_any_other_and_older_ones_go(
    volume: Path, disk: Path, asynchronous: bool
) -> None:
    checkpoints = save_steps(volume, 1, 2, 3, keep=2, local_path=str(disk), asynchronous=asynchronous)
    newest = next(iter(checkpoints))
    assert newest.name == "step-0000000003"
    assert not any(".step" in name for name in names(checkpoints))
    assert checkpoints.verify(newest) == ""
    latest = json.loads((checkpoints.layout.folder / contract.LATEST_FILE).read_text())
    assert latest == {"checkpoint": "step-0000000003", "step": 3}
    assert resumed(volume) == (3, 3.0)


def test_the_nodes_disk_holds_the_newest_alone_and_nothing_when_the_run_has_ended_well(
    volume: Path, disk: Path
) -> None:
    checkpoints = saved_without_close(volume, disk, 1, 2, 3)
    assert local_steps(disk) == ["step-0000000003"]
    checkpoints.close()
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("disk_fails", [False, True])
def test_what_the_shared_folder_has_dropped_as_too_old_does_not_keep_the_nodes_folder_there(
    volume: Path, disk: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, disk_fails: bool
) -> None:
    """The node still has the one that was being copied at the last save, or the last one before its disk failed."""
    checkpoints, _ = tracked(volume, local_path=str(disk), keep=1)
    checkpoints.save(1)
    assert gate.begun.wait(90)
    if disk_fails:
        gate.open()
        until(lambda: list(checkpoints), what="the copy")
        monkeypatch.setattr(Tier, "_begin", lambda *_: "no space left")
    checkpoints.save(2)
    assert "step-0000000001" in local_steps(disk)
    gate.open()
    checkpoints.close()
    assert [path.name for path in checkpoints] == ["step-0000000002"]
    assert list(disk.iterdir()) == []


def test_nobody_else_may_read_what_lies_on_the_node(volume: Path, disk: Path) -> None:
    saved_without_close(volume, disk, 1)
    [folder] = disk.iterdir()
    assert folder.stat().st_mode & 0o077 == 0


def test_a_run_goes_on_from_the_nodes_disk_where_that_is_newer_and_the_copy_is_made_up_for(
    volume: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = saved_without_close(volume, disk, 1, 2)
    shutil.rmtree(checkpoints.layout.path(2))  # as if the process had died before it was copied
    again, model = tracked(volume, local_path=str(disk))
    assert (again.resume(), model.value) == (2, 2.0)
    assert "resumed from step 2, from the nodes' own disks" in capsys.readouterr().out
    again.close()
    assert [path.name for path in again] == ["step-0000000002", "step-0000000001"]
    assert resumed(volume) == (2, 2.0)


def test_where_the_nodes_disk_is_lost_the_shared_folder_is_taken(volume: Path, disk: Path) -> None:
    saved_without_close(volume, disk, 1, 2)
    shutil.rmtree(disk)
    assert resumed(volume, local_path=str(disk)) == (2, 2.0)


@pytest.mark.parametrize("name", [DATA_FILE, "state.pt", ".metadata", "MANIFEST.json"])
def test_what_is_damaged_on_the_nodes_disk_is_named_and_the_shared_one_of_that_step_is_taken(
    volume: Path, disk: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_without_close(volume, disk, 1, 2)
    [damaged] = disk.glob(f"*/checkpoints/step-0000000002/{name}")
    content = bytearray(damaged.read_bytes())
    content[0] ^= 1
    damaged.write_bytes(content)
    assert resumed(volume, local_path=str(disk)) == (2, 2.0)
    said = capsys.readouterr().out
    assert "checkpoint step-0000000002 on the nodes' own disks is left out: rank 0: " in said
    assert "manifest cannot be read" in said if name == "MANIFEST.json" else f"{name} does not match" in said
    assert "from the nodes' own disks" not in said.replace("on the nodes' own disks", "")


def test_damage_on_the_nodes_disk_never_gets_into_the_shared_folder(
    volume: Path, disk: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, _ = tracked(volume, local_path=str(disk))
    checkpoints.save(1)
    assert gate.begun.wait(90)
    [damaged] = disk.glob(f"*/checkpoints/step-0000000001/{DATA_FILE}")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    gate.open()
    checkpoints.close()
    assert "does not match its checksum" in capsys.readouterr().out
    assert list(checkpoints) == []
    assert not any(name.startswith(".step") for name in names(checkpoints))


def test_another_run_of_the_same_name_does_not_find_what_the_former_left_on_the_node(
    volume: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `helm uninstall`, when the claim has been deleted too (the folder of the node has not)."""
    for name in (contract.ENV_NAMESPACE, contract.ENV_RUN_NAME, contract.ENV_RUN_ID):
        monkeypatch.setenv(name, "same")
    saved_without_close(volume, disk, 7)
    shutil.rmtree(volume)
    assert resumed(volume, local_path=str(disk)) == (0, 0.0)
    assert local_steps(disk) == []
    other = saved_without_close(volume, disk, 1)
    monkeypatch.setenv(contract.ENV_RUN_ID, "other")
    saved_without_close(volume.with_name("second"), disk, 2)
    assert local_steps(disk) == ["step-0000000001", "step-0000000002"]
    other.close()


def test_where_copies_take_longer_than_the_time_between_saves_the_newest_is_copied_and_the_rest_is_said(
    volume: Path, disk: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, model = tracked(volume, local_path=str(disk))
    for step in (1, 2, 3, 4):
        model.value = step
        checkpoints.save(step)
    assert list(checkpoints) == []
    assert local_steps(disk) == ["step-0000000001", "step-0000000004"]  # the one that is copied, the newest
    gate.open()
    checkpoints.close()
    assert [path.name for path in checkpoints] == ["step-0000000004", "step-0000000001"]
    said = capsys.readouterr().out
    assert "the checkpoint of step 2 stays out of the shared folder: copies take longer" in said
    assert "of step 3 stays out" in said
    assert resumed(volume) == (4, 4.0)


def test_the_launcher_hears_of_a_save_when_it_is_in_the_shared_folder(
    volume: Path, disk: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = heartbeat.Heartbeat()
    monkeypatch.setattr(heartbeat, "_current", own)
    checkpoints, _ = tracked(volume, local_path=str(disk))
    checkpoints.save(5)
    assert local_steps(disk) == ["step-0000000005"]
    checkpoints.due(6)
    assert own.beat.saved_step == 0
    gate.open()
    until(lambda: list(checkpoints), what="the copy")
    until(lambda: checkpoints.due(7) or own.beat.saved_step == 5, what="the news of it")


def test_a_stop_gives_up_an_older_copy_and_waits_for_the_newest_one_alone(volume: Path, disk: Path, gate: Gate) -> None:
    checkpoints, model = tracked(volume, local_path=str(disk))
    checkpoints.save(1)
    assert gate.begun.wait(90)
    model.value = 2
    assert checkpoints.save(2, wait=True)
    assert [path.name for path in checkpoints] == ["step-0000000002"]
    assert not any(name.startswith(".step") for name in names(checkpoints))


def test_a_script_that_fails_does_not_wait_for_a_copy_and_its_next_attempt_makes_it(
    volume: Path, disk: Path, gate: Gate
) -> None:
    checkpoints, model = tracked(volume, local_path=str(disk))
    model.value = 1
    with contextlib.suppress(ZeroDivisionError), checkpoints:
        checkpoints.save(1)
        assert gate.begun.wait(90)
        raise ZeroDivisionError
    assert list(checkpoints) == []
    assert local_steps(disk) == ["step-0000000001"]
    again, model = tracked(volume, local_path=str(disk))
    assert (again.resume(), model.value) == (1, 1.0)
    again.close()
    assert [again.verify(path) for path in again] == [""]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_copy_that_fails_is_said_training_goes_on_and_the_next_save_is_copied(
    volume: Path, disk: Path, asynchronous: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, model = tracked(volume, local_path=str(disk), asynchronous=asynchronous)
    checkpoints.resume()
    in_the_way = checkpoints.layout.unfinished(1)
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("a file")
    assert checkpoints.save(1, wait=True) is False
    assert "warning: the checkpoint of step 1 could not be written" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match="of step 1 could not be written"):
        checkpoints.save(1, final=True)
    assert local_steps(disk) == ["step-0000000001"]
    in_the_way.unlink()
    model.value = 2
    assert checkpoints.save(2, final=True)
    assert resumed(volume) == (2, 2.0)


def test_what_ends_the_copying_is_raised_as_it_is_at_the_next_step(
    volume: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another rank is gone: its launcher has the reason, and this one is none to report."""

    def gone(*_: Any) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(copying, "shared_out", gone)
    checkpoints, _ = tracked(volume, local_path=str(disk))
    checkpoints.save(1)
    with pytest.raises(RuntimeError, match=r"^Connection closed by peer$"):
        until(lambda: checkpoints.due(2), what="the news of it")


def test_where_the_nodes_disk_fails_checkpoints_go_straight_to_the_shared_folder(
    volume: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = saved_without_close(volume, disk, 1)
    [folder] = disk.glob("*/checkpoints")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    assert checkpoints.save(2, final=True)
    assert "warning: the checkpoint of step 2 goes straight to the shared folder: " in capsys.readouterr().out
    assert [path.name for path in checkpoints] == ["step-0000000002", "step-0000000001"]
    assert checkpoints.verify(next(iter(checkpoints))) == ""


def test_a_folder_that_cannot_be_used_is_an_error_at_first_and_later_a_warning(
    volume: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.write_text("a file")
    with pytest.raises(ConfigError, match=f"train.checkpoint.localPath is {disk}, which cannot be used: rank 0: "):
        resumed(volume, local_path=str(disk))
    monkeypatch.setenv(contract.ENV_ATTEMPT, "2")
    assert save_steps(volume, 1, local_path=str(disk)).layout.finished()
    assert "are written to the shared folder at once" in capsys.readouterr().out


def test_a_folder_that_depends_on_where_a_rank_was_started_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.checkpoint\.localPath is scratch"):
        CheckpointConfig(local_path="scratch")


def test_ranks_of_a_node_share_the_work_of_copying_and_nothing_is_copied_twice() -> None:
    files: Files = {f"file-{number}": {"size": number, "crc32": []} for number in range(8)}
    there = [{"file-1", "file-2", "file-7"}, {"file-1", "file-2", "file-7"}, {"file-7", "file-6", "file-0"}]
    shares = shared_out(files, there)
    assert sorted(name for share in shares for name in share) == ["file-0", "file-1", "file-2", "file-6", "file-7"]
    assert all(set(share) <= names for share, names in zip(shares, there, strict=True))
    assert [sorted(share) for share in shares] == [["file-7"], ["file-1", "file-2"], ["file-0", "file-6"]]
