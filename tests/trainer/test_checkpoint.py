"""Checkpoints are whole or not there (known failure A23)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import STATE_FILE, Checkpoints
from rankzero.train.distributed import process_group
from tests.trainer.ranks import run

CPU = torch.device("cpu")


def save_steps(folder: Path, *steps: int, keep: int = 3) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep=keep)
    with process_group(TrainConfig(backend="gloo")):
        for step in steps:
            checkpoints.save(step, {"weight": torch.full((4,), float(step))})
    return checkpoints


def load(checkpoints: Checkpoints) -> dict[str, Any] | None:
    with process_group(TrainConfig(backend="gloo")):
        return checkpoints.load_latest(CPU)


def test_the_newest_is_loaded_and_only_so_many_are_kept(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 1, 2, 3, 4, keep=2)
    assert [path.name for path in checkpoints] == ["step-0000000004", "step-0000000003"]
    state = load(checkpoints)
    assert state is not None
    assert state["step"] == 4
    assert torch.equal(state["weight"], torch.full((4,), 4.0))


def test_there_is_nothing_to_load_in_a_new_run(tmp_path: Path) -> None:
    assert load(Checkpoints(tmp_path, keep=1)) is None


def damage_cut(path: Path) -> None:
    file = path / STATE_FILE
    file.write_bytes(file.read_bytes()[:-10])


def damage_bit(path: Path) -> None:
    content = bytearray((path / STATE_FILE).read_bytes())
    content[len(content) // 2] ^= 1
    (path / STATE_FILE).write_bytes(content)


def damage_manifest(path: Path) -> None:
    (path / contract.MANIFEST_FILE).write_text("{")


def damage_no_manifest(path: Path) -> None:
    (path / contract.MANIFEST_FILE).unlink()


def damage_no_state(path: Path) -> None:
    (path / STATE_FILE).unlink()


def damage_unreadable(path: Path) -> None:
    """A file whose first byte cannot be read (EIO), as on a failing disk: address 0 of this process."""
    (path / STATE_FILE).unlink()
    (path / STATE_FILE).symlink_to("/proc/self/mem")
    (path / contract.MANIFEST_FILE).write_text(json.dumps({"files": {STATE_FILE: {"size": 0, "sha256": ""}}}))


def damage_manifest_is_a_folder(path: Path) -> None:
    (path / contract.MANIFEST_FILE).unlink()
    (path / contract.MANIFEST_FILE).mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut,
        damage_bit,
        damage_manifest,
        damage_no_manifest,
        damage_no_state,
        damage_unreadable,
        damage_manifest_is_a_folder,
    ],
)
def test_a_damaged_checkpoint_is_left_out_with_the_reason_and_the_one_before_is_used(
    tmp_path: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = save_steps(tmp_path, 1, 2)
    damage(next(iter(checkpoints)))
    state = load(checkpoints)
    assert state is not None
    assert state["step"] == 1
    assert "step-0000000002 is left out: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ([], "its manifest has another form"),
        ({}, "its manifest has another form"),
        ({"files": []}, "its manifest does not name state.pt"),
        ({"files": {}}, "its manifest does not name state.pt"),
        ({"files": {STATE_FILE: {}}}, "its manifest has another form"),
        ({"files": {STATE_FILE: 5}}, "its manifest has another form"),
        (None, "it has no manifest"),
    ],
)
def test_a_manifest_of_another_form_is_a_reason_and_no_traceback(tmp_path: Path, manifest: Any, reason: str) -> None:
    checkpoints = save_steps(tmp_path, 1)
    newest = next(iter(checkpoints))
    (newest / contract.MANIFEST_FILE).write_text(json.dumps(manifest))
    assert checkpoints.verify(newest) == reason


@pytest.mark.parametrize("keep", [1, 2])
def test_what_has_just_been_saved_stays_though_damaged_ones_look_newer(tmp_path: Path, keep: int) -> None:
    """A run whose newest checkpoints are damaged goes on from an older one and saves lower steps again."""
    for path in save_steps(tmp_path, 200, 300):
        damage_cut(path)
    checkpoints = save_steps(tmp_path, 50, keep=keep)
    assert [path.name for path in checkpoints] == ["step-0000000050"]
    state = load(checkpoints)
    assert state is not None
    assert state["step"] == 50


def test_a_step_that_is_saved_again_replaces_the_one_before(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 1)
    damage_cut(next(iter(checkpoints)))
    assert [checkpoints.verify(path) for path in save_steps(tmp_path, 1)] == [""]
    assert names(checkpoints) == ["step-0000000001"]


def names(checkpoints: Checkpoints) -> list[str]:
    """Everything in the folder, unfinished work included."""
    return sorted(path.name for path in checkpoints.folder.iterdir())


SIZE = 8_000_000
"""Bytes of the state that the killed save writes."""
KILLED_IN_A_SAVE = """
import resource, signal, sys, torch
from pathlib import Path
from rankzero.config import TrainConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import process_group
folder, size, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with process_group(TrainConfig(backend="gloo")):
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save(1, {"weight": torch.zeros(size // 4)})
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    checkpoints.save(2, {"weight": torch.zeros(size // 4)})
"""


@pytest.mark.parametrize("written", [1, SIZE // 2, SIZE])
def test_a_save_that_is_killed_while_it_writes_leaves_the_checkpoint_before_and_is_cleared_away(
    tmp_path: Path, written: int
) -> None:
    """The kernel kills the process the moment its file would grow beyond ``written`` bytes."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_A_SAVE, tmp_path, str(SIZE), str(written)],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGXFSZ
    checkpoints = Checkpoints(tmp_path, keep=1)
    assert (checkpoints.folder / ".step-0000000002.tmp" / STATE_FILE).stat().st_size == written
    state = load(checkpoints)
    assert state is not None
    assert state["step"] == 1
    save_steps(tmp_path, 3, keep=1)
    assert names(checkpoints) == ["step-0000000003"]


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


def test_a_full_volume_is_said_and_what_was_written_does_not_stay_in_the_way(
    small_volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = save_steps(small_volume, 1)
    with process_group(TrainConfig(backend="gloo")):
        assert not checkpoints.save(2, {"weight": torch.zeros(SIZE // 2)})
        said = capsys.readouterr().out
        assert "warning: the checkpoint of step 2 could not be written: No space left on device" in said
        assert "is the checkpoint volume full?" in said
        assert names(checkpoints) == ["step-0000000001"]
        # 4 MB fit only where the failed one has gone.
        assert checkpoints.save(3, {"weight": torch.zeros(SIZE // 8)})
    assert [checkpoints.verify(path) for path in checkpoints] == ["", ""]


def test_a_volume_that_refuses_the_final_checkpoint_is_an_error_with_a_fix_and_the_old_one_stays(
    tmp_path: Path,
) -> None:
    checkpoints = save_steps(tmp_path, 1)
    (tmp_path / contract.CHECKPOINTS_DIR / ".step-0000000002.tmp").write_text("in the way")
    with process_group(TrainConfig(backend="gloo")):
        with pytest.raises(CheckpointError, match="checkpoint of step 2 could not be written") as caught:
            checkpoints.save(2, {}, final=True)
        assert "is the checkpoint volume full?" in caught.value.hint
    state = load(checkpoints)
    assert state is not None
    assert state["step"] == 1


def test_the_manifest_tells_the_world_and_the_versions(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 7)
    manifest = json.loads((next(iter(checkpoints)) / contract.MANIFEST_FILE).read_text())
    assert (manifest["step"], manifest["world_size"]) == (7, 1)
    assert manifest["versions"]["torch"] == torch.__version__


def draw(rank: int, folder: Path, restore: bool) -> tuple[float, float]:
    """Save (or load) on this rank, then draw from both generators."""
    checkpoints = Checkpoints(folder, keep=1)
    random.seed(rank)
    torch.manual_seed(rank)
    if restore:
        random.seed(99)
        torch.manual_seed(99)
        checkpoints.load_latest(CPU)
    else:
        checkpoints.save(1, {})
    return random.random(), float(torch.rand(()))


def test_the_random_states_of_all_ranks_come_back(tmp_path: Path) -> None:
    before = run(draw, 2, tmp_path / "run", False)
    after = run(draw, 2, tmp_path / "run", True)
    assert before == after
    assert before[0] != before[1]


def save_on_full_volume(rank: int, folder: Path) -> str:
    blocked = folder / contract.CHECKPOINTS_DIR
    if rank == 0:
        folder.mkdir()
        blocked.write_text("a file where the folder should be")
    if Checkpoints(folder, keep=1).save(1, {}):
        return "saved"
    try:
        Checkpoints(folder, keep=1).save(1, {}, final=True)
    except CheckpointError as error:
        return error.message
    return "no error"


def test_a_failed_save_is_known_and_a_final_one_an_error_on_every_rank(tmp_path: Path) -> None:
    messages = run(save_on_full_volume, 2, tmp_path / "run")
    assert messages[0] == messages[1]
    assert "could not be written" in messages[0]
