"""train.resume: from where, which parts, how strictly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rankzero import contract
from rankzero.config import CheckpointConfig, ResumeConfig
from rankzero.errors import CheckpointError, ConfigError
from rankzero.train.checkpoint import Checkpoints
from tests.trainer.checkpoint.scene import DATA_FILE, Weight, resumed, save_steps, tracked
from tests.trainer.ranks import run


class Counter:
    """A part with a state of its own."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, int]:
        """For the checkpoint."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """From the checkpoint."""
        self.count = state["count"]


def pair(folder: Path, **resume: Any) -> tuple[Checkpoints, nn.Linear, torch.optim.Optimizer, Counter]:
    """A model, its optimizer and a counter, tracked."""
    checkpoints = Checkpoints(folder, CheckpointConfig(asynchronous=False), ResumeConfig(**resume))
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}])
    data = Counter()
    checkpoints.track(model=model, optimizer=optimizer, data=data)
    return checkpoints, model, optimizer, data


@pytest.fixture
def other_run(tmp_path: Path) -> Path:
    """The folder of a run with a checkpoint of step 7."""
    folder = tmp_path / "other"
    checkpoints, model, optimizer, data = pair(folder)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.125
    optimizer.step()
    data.count = 3
    checkpoints.save(7)
    return folder


def has_momentum(optimizer: torch.optim.Optimizer) -> bool:
    return any(bool(state["exp_avg"].any()) for state in optimizer.state.values())


@pytest.mark.parametrize("below", ["", "checkpoints", "checkpoints/step-0000000007"])
def test_a_path_may_name_a_run_its_checkpoints_or_one_of_them(tmp_path: Path, other_run: Path, below: str) -> None:
    checkpoints, model, optimizer, data = pair(tmp_path / "new", from_=str(other_run / below))
    assert checkpoints.resume() == 7
    assert has_momentum(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.25]
    assert data.count == 3
    assert not torch.equal(model.weight, pair(tmp_path / "untouched")[1].weight)


def test_a_script_without_a_state_directory_still_begins_from_a_path(other_run: Path) -> None:
    model = nn.Linear(3, 2)
    checkpoints = Checkpoints(None, resume=ResumeConfig(from_=str(other_run), parts=("model", "step")))
    checkpoints.track(model=model)
    before = model.weight.clone()
    assert checkpoints.resume() == 7
    assert not torch.equal(model.weight, before)
    assert not list(checkpoints)


def test_parts_are_taken_and_the_others_left_as_they_are(tmp_path: Path, other_run: Path) -> None:
    checkpoints, model, optimizer, data = pair(tmp_path / "new", from_=str(other_run), parts=("model",))
    assert checkpoints.resume() == 0
    assert not torch.equal(model.weight, pair(tmp_path / "untouched")[1].weight)
    assert not has_momentum(optimizer)
    assert data.count == 0


def test_after_its_first_checkpoint_a_run_goes_on_from_its_own(tmp_path: Path, other_run: Path) -> None:
    """Known failure A23: a restart of a fine-tuning must not begin again from the base model."""
    checkpoints, _, _, data = pair(tmp_path / "new", from_=str(other_run), parts=("model",))
    assert checkpoints.resume() == 0
    data.count = 99
    checkpoints.save(1)
    again, _, _, data = pair(tmp_path / "new", from_=str(other_run), parts=("model",))
    assert again.resume() == 1
    assert data.count == 99


def test_none_begins_anew_and_is_refused_where_it_would_replace_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = ResumeConfig(from_="none")
    assert resumed(tmp_path, resume=none) == (0, 0.0)
    save_steps(tmp_path, 5)
    with pytest.raises(ConfigError, match=r"train\.resume\.from is none, but this run has checkpoints"):
        resumed(tmp_path, resume=none)
    monkeypatch.setenv(contract.ENV_ATTEMPT, "2")  # the same run, restarted
    assert resumed(tmp_path, resume=none) == (5, 5.0)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere", "there is no such folder"),
        ("empty", "it has no manifest"),
        ("empty/step-0000000001", "it has no manifest"),
        ("nowhere.safetensors", "there is no such file"),
    ],
)
def test_a_path_that_is_no_checkpoint_is_a_wrong_setting(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "empty/step-0000000001").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        resumed(tmp_path / "new", resume=ResumeConfig(from_=str(tmp_path / path)))
    assert f"train.resume.from is {tmp_path / path}, which is no checkpoint to trust: {reason}" in str(caught.value)
    assert "MANIFEST.json" in caught.value.hint
    assert caught.value.exit_code == contract.EXIT_USAGE


def test_a_damaged_checkpoint_that_a_path_names_is_refused_by_name(tmp_path: Path) -> None:
    [path] = save_steps(tmp_path / "other", 1)
    (path / DATA_FILE).unlink()
    with pytest.raises(ConfigError, match=f"{DATA_FILE} is missing"):
        resumed(tmp_path / "new", resume=ResumeConfig(from_=str(path)))


def test_a_part_that_nobody_tracks_is_a_wrong_setting(tmp_path: Path) -> None:
    checkpoints, *_ = pair(tmp_path, parts=("model", "modle"))
    with pytest.raises(ConfigError, match=r"train\.resume\.parts names modle") as caught:
        checkpoints.resume()
    assert "allowed: model, optimizer, data, random, step" in caught.value.hint


class Wider(Weight):
    """More than a Weight."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.ones(2))


class Other(nn.Module):
    """Nothing of a Weight."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Wider(), "model.head is not in it"),
        (Other(), "model.head is not in it; model.weight is not in the model"),
        (Weight(5), "model.weight is (4,) there and (5,) here"),
    ],
)
def test_a_model_that_does_not_fit_is_told_by_name_and_strict_false_loads_the_rest(
    tmp_path: Path, model: nn.Module, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_steps(tmp_path, 3)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.track(model=model)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.resume()
    assert reason in caught.value.message
    lenient = Checkpoints(tmp_path, resume=ResumeConfig(strict=False))
    lenient.track(model=model)
    assert lenient.resume() == 3
    assert f"entries do not, first {reason.partition(';')[0]}" in capsys.readouterr().out
    if isinstance(model, Wider):
        assert model.weight.tolist() == [3.0] * 4
        assert model.head.tolist() == [1.0] * 2


def test_a_part_that_the_checkpoint_lacks_is_told_by_name(tmp_path: Path) -> None:
    save_steps(tmp_path, 3)
    checkpoints, model = tracked(tmp_path)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoints.track(optimizer=optimizer)
    with pytest.raises(CheckpointError, match="it has no part 'optimizer'"):
        checkpoints.resume()


def test_another_grouping_of_parameters_is_refused(tmp_path: Path, other_run: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new", resume=ResumeConfig(from_=str(other_run), parts=("model", "optimizer")))
    model = nn.Linear(3, 2)
    checkpoints.track(model=model, optimizer=torch.optim.Adam(model.parameters()))
    with pytest.raises(CheckpointError, match="optimizer has 2 parameter groups there and 1 here"):
        checkpoints.resume()


def test_a_parameter_without_a_gradient_so_far_has_no_state_and_is_resumed_without(tmp_path: Path) -> None:
    def make() -> tuple[Checkpoints, nn.Module, torch.optim.Optimizer]:
        checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=False))
        model = nn.ModuleDict({"used": nn.Linear(2, 1), "later": nn.Linear(2, 1)})
        optimizer = torch.optim.Adam(model.parameters())
        checkpoints.track(model=model, optimizer=optimizer)
        return checkpoints, model, optimizer

    checkpoints, model, optimizer = make()
    model["used"](torch.ones(1, 2)).sum().backward()  # type: ignore[index]
    optimizer.step()
    checkpoints.save(1)
    again, model, optimizer = make()
    assert again.resume() == 1
    assert {id(parameter) for parameter in optimizer.state} == {id(p) for p in model["used"].parameters()}  # type: ignore[index]


def wrapped(state: dict[str, torch.Tensor], how: str) -> Any:
    """A state_dict as scripts write it."""
    if how == "ddp":
        return {f"module.{name}": value for name, value in state.items()}
    return {"plain": state, "nested": {"model": state, "epoch": 3}}[how]


@pytest.mark.parametrize("how", ["plain", "ddp", "nested"])
@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_weights_come_from_plain_files(tmp_path: Path, how: str, ending: str) -> None:
    file = tmp_path / f"base{ending}"
    state = {"weight": torch.full((4,), 8.0)}
    if ending == ".safetensors":
        if how == "nested":
            pytest.skip("safetensors files are flat")
        save_file(wrapped(state, how), file)
    else:
        torch.save(wrapped(state, how), file)
    assert resumed(tmp_path / "new", resume=ResumeConfig(from_=str(file))) == (0, 8.0)


def test_weights_that_do_not_fit_or_cannot_be_read_are_named(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(5), "other": torch.zeros(1)}, tmp_path / "wrong.pt")
    with pytest.raises(CheckpointError, match=r"other is not in the model; weight is \(5,\), not \(4,\)"):
        resumed(tmp_path / "new", resume=ResumeConfig(from_=str(tmp_path / "wrong.pt")))
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    with pytest.raises(CheckpointError, match="holds no state_dict"):
        resumed(tmp_path / "new", resume=ResumeConfig(from_=str(tmp_path / "none.pt")))
    (tmp_path / "cut.safetensors").write_bytes(b"\1\2\3")
    with pytest.raises(CheckpointError, match=r"cannot read weights from .*cut"):
        resumed(tmp_path / "new", resume=ResumeConfig(from_=str(tmp_path / "cut.safetensors")))


@pytest.mark.parametrize("how", ["plain", "ddp"])
def test_weights_come_from_files_of_an_old_torch_too(tmp_path: Path, how: str) -> None:
    """As many published ones are: no archive, which cannot be mapped."""
    state = {"weight": torch.full((4,), 8.0)}
    torch.save(wrapped(state, how), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert resumed(tmp_path / "new", resume=ResumeConfig(from_=str(tmp_path / "old.pth"))) == (0, 8.0)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot read weights from .*: EOFError"),
        (b"hello, world", "cannot read weights from .*: "),
        (None, r"holds more than weights: a .*\.Weight, which could run code\n  fix: load it once where you trust it"),
    ],
)
def test_files_that_hold_no_weights_are_named_without_advice_to_run_them(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    file = tmp_path / "model.pt"
    if content is None:
        torch.save(Weight(), file)
    else:
        file.write_bytes(content)
    with pytest.raises(CheckpointError, match=told) as error:
        resumed(tmp_path / "new", resume=ResumeConfig(from_=str(file)))
    assert len(str(error.value)) < 600
    assert "False" not in str(error.value)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_where_what_fits_is_loaded_an_optimizer_can_go_on(tmp_path: Path, kind: type[torch.optim.Optimizer]) -> None:
    """Of a layer that has another shape now, and of an optimizer of another kind, the state begins anew."""

    def made(width: int, kind: Any, *, strict: bool) -> tuple[Checkpoints, nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))
        optimizer = kind(model.parameters(), 0.1)
        checkpoints = Checkpoints(tmp_path, CheckpointConfig(asynchronous=False), ResumeConfig(strict=strict))
        checkpoints.track(model=model, optimizer=optimizer)
        return checkpoints, model, optimizer

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    checkpoints, model, optimizer = made(3, torch.optim.Adam, strict=True)
    step(model, optimizer)
    checkpoints.save(1)
    again, model, optimizer = made(5, kind, strict=False)
    assert again.resume() == 1
    step(model, optimizer)
    with pytest.raises(CheckpointError, match="does not fit what is trained"):
        made(5, kind, strict=True)[0].resume()


def weights_of_a_file(rank: int, folder: Path) -> str:
    """What is said where the file is there on all nodes, and damaged on that of rank 1."""
    file = folder / f"model-{rank}.pt"
    torch.save({"weight": torch.ones(4)}, file)
    if rank == 1:
        file.write_bytes(b"damaged")
    with pytest.raises(CheckpointError) as caught:
        resumed(folder / "run", resume=ResumeConfig(from_=str(file)))
    return caught.value.message


@pytest.mark.slow
def test_a_file_that_one_rank_cannot_read_lets_no_other_rank_wait(tmp_path: Path) -> None:
    first, second = run(weights_of_a_file, 2, tmp_path)
    assert second.startswith(f"cannot read weights from {tmp_path}/model-1.pt: ")
    assert first.startswith(f"{tmp_path}/model-0.pt could not be read by rank 1: CheckpointError: cannot read weights")


def own_state(rank: int, folder: Path, parts: tuple[str, ...]) -> int | str:
    """Save or load a part that each rank has for itself."""
    counter = Counter(10 + rank)
    checkpoints = Checkpoints(folder, CheckpointConfig(asynchronous=False), ResumeConfig(parts=parts))
    checkpoints.track_each_rank(mine=counter)
    if not any(checkpoints):
        checkpoints.save(1)
        return 0
    counter.count = 0
    try:
        checkpoints.resume()
    except CheckpointError as error:
        return str(error)
    return counter.count


@pytest.mark.slow
def test_what_each_rank_has_for_itself_comes_back_and_another_world_is_refused_by_name(tmp_path: Path) -> None:
    assert run(own_state, 2, tmp_path, ()) == [0, 0]
    assert run(own_state, 2, tmp_path, ()) == [10, 11]
    [text] = run(own_state, 1, tmp_path, ())
    assert "was written by 2 ranks, and the part 'mine', which each rank has for itself, cannot be split anew" in text
    assert "fix: run with 2 ranks, or leave mine out of train.resume.parts" in text


def from_where_it_is(rank: int, folder: Path, path: str) -> str:
    """Resume from ``path``, which each rank sees in a folder of its own."""
    os.chdir(folder / str(rank))
    checkpoints, *_ = pair(folder / "new", from_=path)
    try:
        return str(checkpoints.resume())
    except ConfigError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("path", ["run", "run/checkpoints", "run/checkpoints/step-0000000007", "copied"])
def test_a_path_that_one_rank_alone_sees_is_refused_by_all(
    tmp_path: Path, other_run: Path, path: str, who: int
) -> None:
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    other_run.rename(tmp_path / str(who) / "run")
    shutil.copytree(tmp_path / f"{who}/run/checkpoints/step-0000000007", tmp_path / f"{who}/copied")
    first, second = run(from_where_it_is, 2, tmp_path, path)
    assert first == second
    assert f"train.resume.from is {path}, which is no checkpoint to trust: " in first
    assert "every rank must see it" in first
