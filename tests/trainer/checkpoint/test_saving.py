"""What a save leaves, with and without waiting for it; what a volume that refuses does to it."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch

from rankzero import contract, heartbeat
from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.checkpoint.layout import Layout
from rankzero.train.distributed import seed
from tests.trainer.checkpoint.scene import DATA_FILE, names, resumed, save_steps, tracked
from tests.trainer.ranks import run


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_newest_is_loaded_and_only_so_many_are_kept(tmp_path: Path, asynchronous: bool) -> None:
    checkpoints = save_steps(tmp_path, 1, 2, 3, 4, keep=2, asynchronous=asynchronous)
    assert [path.name for path in checkpoints] == ["step-0000000004", "step-0000000003"]
    assert resumed(tmp_path) == (4, 4.0)
    latest = json.loads((checkpoints.layout.folder / contract.LATEST_FILE).read_text())
    assert latest == {"checkpoint": "step-0000000004", "step": 4}


def test_there_is_nothing_to_load_in_a_new_run(tmp_path: Path) -> None:
    assert resumed(tmp_path) == (0, 0.0)


def test_the_manifest_tells_the_world_the_versions_and_the_settings(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, settings={"learning_rate": 0.1})
    checkpoints.save(7, metric=0.5)
    checkpoints.close()
    manifest = json.loads((next(iter(checkpoints)) / contract.MANIFEST_FILE).read_text())
    assert (manifest["step"], manifest["world_size"], manifest["metric"]) == (7, 1, 0.5)
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["settings"] == {"learning_rate": 0.1}


def test_a_script_without_a_state_directory_saves_nothing_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = Checkpoints(None)
    assert checkpoints.resume() == 0
    assert not checkpoints.due(100)
    assert checkpoints.save(100)
    assert f"{contract.ENV_STATE_DIR} names no folder" in capsys.readouterr().out


def test_the_launcher_hears_of_a_save_when_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = heartbeat.Heartbeat()
    monkeypatch.setattr(heartbeat, "_current", own)
    checkpoints, _ = tracked(tmp_path, asynchronous=True)
    assert own.beat.saved_step == 0
    checkpoints.save(5, wait=True)
    assert own.beat.saved_step == 5
    assert own.beat.save_seconds > 0
    assert checkpoints.verify(next(iter(checkpoints))) == ""


SIZE = 8_000_000
"""Bytes of the state that the killed save writes."""
KILLED_IN_A_SAVE = """
import resource, signal, sys, torch
from pathlib import Path
from tests.trainer.checkpoint.scene import tracked
folder, size, limit, asynchronous = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
checkpoints, model = tracked(folder, size // 4, keep=1, asynchronous=asynchronous)
model.value = 1
checkpoints.save(1, wait=True)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
checkpoints.save(2, wait=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("written", "asynchronous"), [(1, False), (SIZE // 2, True), (SIZE // 2, False), (SIZE, True)])
def test_a_save_that_is_killed_while_it_writes_leaves_the_checkpoint_before_and_is_cleared_away(
    tmp_path: Path, written: int, asynchronous: bool
) -> None:
    """The kernel kills the process the moment its file would grow beyond ``written`` bytes."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_A_SAVE, tmp_path, str(SIZE), str(written), str(asynchronous)],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGXFSZ
    checkpoints, _ = tracked(tmp_path, SIZE // 4)
    assert (checkpoints.layout.unfinished(2) / DATA_FILE).stat().st_size == written
    assert resumed(tmp_path, size=SIZE // 4) == (1, 1.0)
    save_steps(tmp_path, 3, keep=1)
    assert names(checkpoints) == ["latest.json", "step-0000000003"]


def test_a_kill_while_a_step_is_saved_again_leaves_the_checkpoint_that_was_to_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = save_steps(tmp_path, 1).layout
    shutil.copytree(layout.path(1), layout.unfinished(1))
    renamed = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if self == layout.unfinished(1):
            raise KeyboardInterrupt
        return renamed(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        layout.publish(1)
    monkeypatch.undo()
    assert not layout.finished()
    assert resumed(tmp_path) == (1, 1.0)


def test_attempts_write_into_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    monkeypatch.setenv(contract.ENV_ATTEMPT, "1")
    layout.begin(5)
    cut_off = layout.unfinished(5)
    monkeypatch.setenv(contract.ENV_ATTEMPT, "2")
    assert layout.unfinished(5) != cut_off
    layout.make_room()
    assert not cut_off.exists()


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system can be mounted by root alone: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_volume_is_said_training_goes_on_and_the_next_save_is_tried(
    small_volume: Path, capsys: pytest.CaptureFixture[str], asynchronous: bool
) -> None:
    save_steps(small_volume, 1)
    checkpoints, _ = tracked(small_volume, SIZE // 2, asynchronous=asynchronous)
    assert checkpoints.save(2, wait=True) is False
    checkpoints.due(3)
    said = capsys.readouterr().out
    assert "warning: the checkpoint of step 2 could not be written: No space left on device" in said
    assert "is the checkpoint volume full?" in said
    assert names(checkpoints) == ["latest.json", "step-0000000001"]
    # 4 MB fit only where the failed one has gone.
    again, _ = tracked(small_volume, SIZE // 8, asynchronous=asynchronous)
    assert again.save(3, wait=True)
    again.close()
    assert [again.verify(path) for path in again] == ["", ""]


def test_a_save_that_cannot_fit_is_not_begun(small_volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints, _ = tracked(small_volume, SIZE // 7)  # 4.6 MB of 8 MiB
    assert checkpoints.save(1)
    assert not checkpoints.save(2)
    assert "are free on" in capsys.readouterr().out
    assert names(checkpoints) == ["latest.json", "step-0000000001"]
    # One that resumes knows as much.
    again, _ = tracked(small_volume, SIZE // 7)
    assert again.resume() == 1
    assert not again.save(2)


def test_what_a_killed_save_has_left_goes_before_room_is_looked_for(small_volume: Path) -> None:
    """Otherwise it stays for ever, and with it the reason to refuse each save."""
    save_steps(small_volume, 1, size=SIZE // 8)
    checkpoints, _ = tracked(small_volume, SIZE // 8, keep=1)
    checkpoints.resume()
    left = checkpoints.layout.unfinished(2)
    left.mkdir()
    (left / DATA_FILE).write_bytes(bytes(3_000_000))
    assert checkpoints.save(3)
    assert names(checkpoints) == ["latest.json", "step-0000000003"]


def test_a_leftover_that_cannot_be_removed_keeps_no_save_from_being_made(tmp_path: Path) -> None:
    """As on NFS, where a file that somebody reads keeps its folder."""
    checkpoints, _ = tracked(tmp_path)
    checkpoints.layout.folder.mkdir()
    checkpoints.layout.unfinished(1).symlink_to(tmp_path)  # which rmtree refuses
    assert checkpoints.save(2)
    assert resumed(tmp_path) == (2, 0.0)


def test_a_volume_that_fills_up_is_told_before_it_is_full(
    small_volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_steps(small_volume, 1, size=SIZE // 8)
    assert "% of the volume" not in capsys.readouterr().out
    (small_volume / "other").write_bytes(bytes(3_500_000))
    save_steps(small_volume, 2)
    assert "% of the volume" in capsys.readouterr().out


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_volume_that_refuses_the_final_checkpoint_is_an_error_with_a_fix_and_the_old_one_stays(
    tmp_path: Path, asynchronous: bool
) -> None:
    save_steps(tmp_path, 1)
    checkpoints, _ = tracked(tmp_path, asynchronous=asynchronous)
    checkpoints.layout.unfinished(2).write_text("in the way")
    with pytest.raises(CheckpointError, match="checkpoint of step 2 could not be written") as caught:
        checkpoints.save(2, final=True)
    assert "is the checkpoint volume full?" in caught.value.hint
    assert resumed(tmp_path) == (1, 1.0)


class Unsafe:
    """A part whose state is an object of a class: to load one is to run somebody's code."""

    def state_dict(self) -> object:
        """No plain data."""
        return {"when": Path("now")}

    def load_state_dict(self, state: object) -> None:
        """Never reached."""


@pytest.mark.parametrize("part", [object(), 5])
def test_what_has_no_state_is_refused_when_it_is_tracked(tmp_path: Path, part: object) -> None:
    with pytest.raises(CheckpointError, match="has no state to save"):
        Checkpoints(tmp_path).track(extra=part)


def test_a_state_that_could_not_be_loaded_again_is_an_error_at_the_first_save(tmp_path: Path) -> None:
    checkpoints, _ = tracked(tmp_path)
    checkpoints.track(extra=Unsafe())
    with pytest.raises(CheckpointError, match="the state of 'extra' could not be loaded again"):
        checkpoints.save(1)


def save_what_cannot_be(rank: int, folder: Path) -> str:  # noqa: ARG001
    checkpoints, _ = tracked(folder)
    checkpoints.track(extra=Unsafe())
    with pytest.raises(CheckpointError) as caught:
        checkpoints.save(1)
    return caught.value.message


@pytest.mark.slow
def test_a_state_that_rank_0_cannot_save_lets_no_other_rank_wait(tmp_path: Path) -> None:
    """It alone packs what is the same on all of them."""
    first, second = run(save_what_cannot_be, 2, tmp_path)
    assert first.startswith("the state of 'extra' could not be loaded again")
    assert second.startswith(
        "the state after step 1 could not be taken by rank 0: CheckpointError: the state of 'extra'"
    )


def test_an_optimizer_whose_model_is_not_tracked_is_refused(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    with pytest.raises(CheckpointError, match="'optimizer' has parameters of no tracked module"):
        Checkpoints(tmp_path).track(optimizer=optimizer)


def draw(rank: int, folder: Path, restore: bool) -> tuple[float, float, float]:
    """Save (or load) on this rank, then draw from all generators."""
    checkpoints, _ = tracked(folder)
    seed(rank)
    if restore:
        seed(99)
        checkpoints.resume()
    else:
        checkpoints.save(1)
    return random.random(), float(torch.rand(())), float(numpy.random.random())


@pytest.mark.slow
def test_the_random_states_of_all_ranks_come_back(tmp_path: Path) -> None:
    before = run(draw, 2, tmp_path, False)
    after = run(draw, 2, tmp_path, True)
    assert before == after
    assert not set(before[0]) & set(before[1])


def save_on_full_volume(rank: int, folder: Path, asynchronous: bool) -> str:
    blocked = folder / contract.CHECKPOINTS_DIR
    if rank == 0:
        folder.mkdir()
        blocked.write_text("a file where the folder should be")
    checkpoints, _ = tracked(folder, asynchronous=asynchronous)
    if checkpoints.save(1, wait=True):
        return "saved"
    try:
        checkpoints.save(1, final=True)
    except CheckpointError as error:
        return error.message
    return "no error"


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failed_save_is_known_and_a_final_one_an_error_on_every_rank(tmp_path: Path, asynchronous: bool) -> None:
    messages = run(save_on_full_volume, 2, tmp_path / "run", asynchronous)
    assert messages[0] == messages[1]
    assert "could not be written" in messages[0]
