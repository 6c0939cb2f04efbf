"""rankzero export: one safetensors file, from sharded state too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import fully_shard

from rankzero import cli, contract
from rankzero.config import CheckpointConfig, ResumeConfig
from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import Checkpoints, load
from rankzero.train.checkpoint.export import export
from tests.trainer.checkpoint.scene import DATA_FILE, resumed, save_steps
from tests.trainer.ranks import run


def test_a_run_is_exported_from_its_newest_good_checkpoint_and_can_be_resumed_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = save_steps(tmp_path / "run", 5, 6)
    (checkpoints.layout.path(6) / DATA_FILE).unlink()
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", str(tmp_path / "run"), str(tmp_path / "out.safetensors")])
    assert ended.value.code == contract.EXIT_OK
    said = capsys.readouterr()
    assert "1 tensors" in said.out
    assert f"checkpoint step-0000000006 is left out: {DATA_FILE} is missing" in said.err
    assert load_file(tmp_path / "out.safetensors")["weight"].tolist() == [5.0] * 4
    with safe_open(tmp_path / "out.safetensors", "pt") as file:
        assert file.metadata()["step"] == "5"
    assert resumed(tmp_path / "new", resume=ResumeConfig(from_=str(tmp_path / "out.safetensors"))) == (0, 5.0)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["run", "out.safetensors", "--part", "ema"], contract.EXIT_USAGE, "has no part 'ema'"),
        (["nowhere", "out.safetensors"], contract.EXIT_USAGE, "nowhere is no checkpoint"),
        (["run/checkpoints/step-0000000001", "out.safetensors"], 1, f"cannot be trusted: {DATA_FILE} is missing"),
        (["run", "nowhere/out.safetensors"], contract.EXIT_USAGE, "lies in nowhere, which is no folder"),
        (["run", "run.safetensors/"], contract.EXIT_USAGE, "run.safetensors is a folder"),
        (["run", "model.bin"], contract.EXIT_USAGE, "model.bin does not end in .safetensors"),
        (["run", ""], contract.EXIT_USAGE, "does not end in .safetensors"),
        (["run", "full/out.safetensors"], 1, "cannot write full/out.safetensors"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = save_steps(tmp_path / "run", 1, 2)
    (checkpoints.layout.path(1) / DATA_FILE).unlink()
    (tmp_path / "run.safetensors").mkdir()
    (tmp_path / "full").symlink_to("/proc/self")  # a folder in which nobody can make a file
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", *arguments])
    assert ended.value.code == status
    said = capsys.readouterr().err
    assert sentence in said
    assert "  fix: " in said
    assert not [path for path in tmp_path.glob("*.safetensors") if path.is_file()]


def test_a_checkpoint_that_its_run_deletes_while_it_is_exported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = save_steps(tmp_path / "run", 1)

    def deleted(*_: object) -> None:
        checkpoints.layout.remove(checkpoints.layout.path(1))
        raise FileNotFoundError(DATA_FILE)

    monkeypatch.setattr(load, "read", deleted)
    with pytest.raises(CheckpointError, match="has just been deleted"):
        export(tmp_path / "run", tmp_path / "out.safetensors")


def save_sharded(_rank: int, folder: Path) -> list[list[float]]:
    """Save a sharded model; its weights."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    whole = [model.weight.detach().flatten().tolist(), model.bias.detach().tolist()]
    fully_shard(model)
    checkpoints = Checkpoints(folder, CheckpointConfig(asynchronous=False))
    checkpoints.track(model=model)
    checkpoints.save(1)
    return whole


@pytest.mark.slow
def test_a_sharded_model_is_exported_whole(tmp_path: Path) -> None:
    weight, bias = run(save_sharded, 2, tmp_path / "run")[0]
    with pytest.raises(SystemExit):
        cli.main(["export", str(tmp_path / "run"), str(tmp_path / "out.safetensors")])
    found = load_file(tmp_path / "out.safetensors")
    assert found["weight"].flatten().tolist() == weight
    assert found["bias"].tolist() == bias
