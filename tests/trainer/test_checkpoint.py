"""Checkpoints are whole or not there (known failure A23)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import STATE_FILE, Checkpoints
from rankzero.train.distributed import process_group
from tests.trainer.ranks import on_ranks
from tests.waiting import until

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


@pytest.mark.parametrize("damage", [damage_cut, damage_bit, damage_manifest, damage_no_manifest, damage_no_state])
def test_a_damaged_checkpoint_is_left_out_with_the_reason_and_the_one_before_is_used(
    tmp_path: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = save_steps(tmp_path, 1, 2)
    damage(next(iter(checkpoints)))
    state = load(checkpoints)
    assert state is not None
    assert state["step"] == 1
    assert "step-0000000002 is left out: " in capsys.readouterr().out


def test_a_save_that_is_killed_half_way_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    code = f"""
import itertools, torch
from pathlib import Path
from rankzero.config import TrainConfig
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import process_group
with process_group(TrainConfig(backend="gloo")):
    checkpoints = Checkpoints(Path({str(tmp_path)!r}), keep=2)
    for step in itertools.count(1):
        checkpoints.save(step, {{"weight": torch.zeros(2_000_000)}})
"""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for _ in range(3):  # each kill falls into another moment of a save
        before = {path.name for path in checkpoints}
        process = subprocess.Popen([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)})
        try:
            until(lambda b=before: {p.name for p in checkpoints} - b, timeout=60, what="a new checkpoint")  # type: ignore[misc]
        finally:
            process.kill()
            process.wait()
        assert [checkpoints.verify(path) for path in checkpoints] == [""] * len(list(checkpoints))
    assert load(checkpoints) is not None


def test_a_full_or_readonly_volume_is_an_error_with_a_fix_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 1)
    (tmp_path / contract.CHECKPOINTS_DIR / ".step-0000000002.tmp").write_text("in the way")
    with pytest.raises(CheckpointError, match="checkpoint of step 2 could not be written"):
        save_steps(tmp_path, 2)
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
    before = on_ranks(draw, 2, tmp_path, tmp_path / "run", False)
    after = on_ranks(draw, 2, tmp_path, tmp_path / "run", True)
    assert before == after
    assert before[0] != before[1]


def save_on_full_volume(rank: int, folder: Path) -> str:
    blocked = folder / contract.CHECKPOINTS_DIR
    if rank == 0:
        folder.mkdir()
        blocked.write_text("a file where the folder should be")
    try:
        Checkpoints(folder, keep=1).save(1, {})
    except CheckpointError as error:
        return error.message
    return "no error"


def test_a_failed_save_is_an_error_on_every_rank(tmp_path: Path) -> None:
    messages = on_ranks(save_on_full_volume, 2, tmp_path, tmp_path / "run")
    assert messages[0] == messages[1]
    assert "could not be written" in messages[0]
