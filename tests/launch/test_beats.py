"""An attempt's folder in the node's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankzero.launch import beats
from tests.launch.conftest import MakeGroup
from tests.waiting import until


def test_folders_of_a_launcher_that_was_killed_are_removed_and_those_of_other_pods_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beats, "MEMORY", tmp_path)
    folders = {uid: beats.attempt_folder(uid, 3) for uid in ("1f-a", "1f-b")}
    for folder in folders.values():
        Path(folder.name, "heartbeat-00000").touch()
    beats.remove_leftovers("1f-a")
    assert list(tmp_path.iterdir()) == [Path(folders["1f-b"].name)]


def test_a_container_that_is_started_again_removes_what_its_predecessor_left_in_memory(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1).start(uid="one")
    folder = Path(group.wait_for_workers(1, 1)[0]["RANKZERO_ATTEMPT_DIR"])
    group.pods[0].delete()
    assert folder.is_dir()
    group.pods[0].start(uid="one")
    second = Path(group.wait_for_workers(2, 1)[0]["RANKZERO_ATTEMPT_DIR"])
    assert not folder.exists()
    group.release()
    assert group.pods[0].wait() == 0
    until(lambda: not second.exists(), what="the folder of the last attempt is gone")
