"""Checkpoints on the disks of several nodes: a folder for each rank, or for two, stands for a node's disk."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rankzero import contract
from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint import Checkpoints, copying
from tests.trainer.checkpoint.test_sharded import build, everything, steps
from tests.trainer.ranks import run

pytestmark = pytest.mark.slow

State = dict[str, list[float]]


class Left(Exception):
    """Ends a rank as a crash would: nothing is waited for."""


def train(rank: int, folder: Path, form: str, nodes: list[int], last: int, copied: bool) -> tuple[int, State, str]:
    """Go on from what is there, five steps and a save, two more; what a resume is to find, and what was said.

    ``copied`` False keeps every copy from being made.
    """
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        if not copied:
            patch.setattr(copying, "copy", refuse)
        return *train_and_leave(folder, form, folder / f"node-{nodes[rank]}", last), said.getvalue()


def refuse(*_: Any) -> bool:
    """In the place of a copy."""
    raise OSError("the network is down")


def train_and_leave(folder: Path, form: str, disk: Path, last: int) -> tuple[int, State]:
    """As :func:`train`."""
    model = build(form)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    config = CheckpointConfig(local_path=str(disk))
    try:
        with Checkpoints(folder / "volume", config) as checkpoints:
            checkpoints.track(model=model, optimizer=optimizer)
            first = checkpoints.resume()
            began = everything(model, optimizer)
            if last:
                steps(model, optimizer, first + 1, last)
                began = everything(model, optimizer)
                checkpoints.save(last, wait=True)
                steps(model, optimizer, last + 1, last + 2)
            raise Left
    except Left:
        return first, began


def on_nodes(folder: Path) -> list[tuple[str, list[str]]]:
    """What lies where."""
    return [
        (path.relative_to(folder).parts[0], sorted(file.name for file in path.iterdir()))
        for path in sorted(folder.glob("node-*/*/checkpoints/step-*"))
    ]


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "volume" / contract.CHECKPOINTS_DIR).glob("step-*"))


@pytest.mark.parametrize(
    ("form", "nodes", "later"),
    [
        ("fsdp", [0, 0, 1, 1], [0, 0, 1, 1]),
        ("ddp", [0, 1], [0, 1]),
        ("fsdp", [0, 1], [1, 0]),  # pods that have changed places
        ("hsdp", [0, 0, 1, 1], [1, 1, 0, 0]),
    ],
)
def test_what_the_nodes_hold_together_is_enough_to_go_on_exactly(
    tmp_path: Path, form: str, nodes: list[int], later: list[int]
) -> None:
    """Optimizers count their steps in small tensors, each written by one rank only: those are sent."""
    saved = run(train, len(nodes), tmp_path, form, nodes, 5, False)
    assert copies(tmp_path) == []
    assert [where for where, _ in on_nodes(tmp_path)] == ["node-0", "node-1"]
    assert not {*on_nodes(tmp_path)[0][1]} & {*on_nodes(tmp_path)[1][1]} - {".metadata", "state.pt", "MANIFEST.json"}
    again = run(train, len(nodes), tmp_path, form, later, 0, True)
    for step, found, _ in again:
        assert step == 5
        assert found == saved[0][1]
    assert "resumed from step 5, from the nodes' own disks" in again[0][2]


def test_a_node_that_is_replaced_has_nothing_and_the_shared_folder_is_taken(tmp_path: Path) -> None:
    expected = run(train, 2, tmp_path, "fsdp", [0, 1], 5, True)[0][1]
    run(train, 2, tmp_path, "fsdp", [0, 1], 10, False)
    assert copies(tmp_path) == ["step-0000000005"]
    shutil.rmtree(tmp_path / "node-1")
    again = run(train, 2, tmp_path, "fsdp", [0, 1], 0, True)
    assert [rank[:2] for rank in again] == [(5, expected)] * 2
    assert "step-0000000010 on the nodes' own disks is left out: rank 1: its node has nothing of it" in again[0][2]
    # What goes on from there is not overtaken by what the other node still has.
    run(train, 2, tmp_path, "fsdp", [0, 1], 8, False)
    assert [where for where, _ in on_nodes(tmp_path)] == ["node-0", "node-1"]
    for step, _, _ in run(train, 2, tmp_path, "fsdp", [0, 1], 0, True):
        assert step == 8


def test_another_number_of_ranks_goes_on_from_the_shared_folder(tmp_path: Path) -> None:
    expected = run(train, 2, tmp_path, "fsdp", [0, 1], 5, True)[0][1]
    run(train, 2, tmp_path, "fsdp", [0, 1], 10, False)
    step, found, said = run(train, 1, tmp_path, "plain", [0], 0, True)[0]
    assert (step, found) == (5, expected)
    assert "it is of 2 ranks" in said


def test_a_shard_that_is_damaged_on_one_node_is_named_and_the_shared_folder_is_taken(tmp_path: Path) -> None:
    expected = run(train, 2, tmp_path, "fsdp", [0, 1], 5, True)[0][1]
    [shard] = tmp_path.glob("node-1/*/checkpoints/step-*/__1_0.distcp")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    again = run(train, 2, tmp_path, "fsdp", [0, 1], 0, True)
    assert [rank[:2] for rank in again] == [(5, expected)] * 2
    assert "left out: rank 1: __1_0.distcp does not match its checksum" in again[0][2]


def test_a_copy_has_every_file_once_and_is_whole_to_others(tmp_path: Path) -> None:
    expected = run(train, 4, tmp_path, "hsdp", [0, 0, 1, 1], 5, True)[0][1]
    [copy] = (tmp_path / "volume" / contract.CHECKPOINTS_DIR).glob("step-*")
    manifest = json.loads((copy / contract.MANIFEST_FILE).read_text())
    assert manifest["world_size"] == 4
    assert {path.name for path in copy.iterdir()} == {*manifest["files"], contract.MANIFEST_FILE}
    shutil.rmtree(tmp_path / "node-0")
    shutil.rmtree(tmp_path / "node-1")
    assert run(train, 1, tmp_path, "plain", [0], 0, True)[0][:2] == (5, expected)
