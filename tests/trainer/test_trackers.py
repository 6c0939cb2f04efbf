"""Figures also go to TensorBoard's files, Weights & Biases and MLflow, and none of them can hold up a training.

wandb and mlflow are no dependency of ours: what stands in for them here has their functions' signatures, and both
packages themselves (0.31 offline, 3.17 with a file store) were run by hand.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.record_writer import masked_crc32c  # type: ignore[import-untyped]

from rankzero import contract
from rankzero.config import ProgressConfig
from rankzero.errors import ConfigError
from rankzero.train.trackers import Trackers

ALL = ProgressConfig(tensorboard=True, wandb="digits", mlflow="digits")


def events(file: Path) -> Iterator[Event]:
    """What is in an event file; each record's checksums are checked."""
    data = file.read_bytes()
    while data:
        [length] = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12]) == (masked_crc32c(data[:8]),)
        body = data[12 : 12 + length]
        assert struct.unpack("<I", data[12 + length : 16 + length]) == (masked_crc32c(body),)
        yield Event.FromString(body)
        data = data[16 + length :]


def written(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """Steps and figures in the order of the files."""
    files = sorted((folder / contract.TENSORBOARD_DIR).iterdir(), key=lambda file: file.name)
    found = [event for file in files if not file.is_symlink() for event in events(file)]
    return [(one.step, {v.tag: v.simple_value for v in one.summary.value}) for one in found if one.summary.value]


class Server:
    """What stands in for the packages wandb and mlflow, and what they were told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[dict[str, Any]] = []
        self.told: list[dict[str, float]] = []
        self.broken = False
        wandb, mlflow = ModuleType("wandb"), ModuleType("mlflow")
        vars(wandb).update(init=self._init)
        vars(mlflow).update(set_experiment=self._ignore, start_run=self._start_run, log_metrics=self._log_metrics)
        for module in (wandb, mlflow):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example.com")
        monkeypatch.setenv(contract.ENV_RUN_NAME, "mnist")
        monkeypatch.setenv(contract.ENV_RUN_ID, "main")

    def _init(self, *, project: str, name: str | None, id: str | None, resume: str, dir: Path) -> Any:
        self.started.append({"project": project, "name": name, "id": id, "resume": resume, "dir": dir})
        return SimpleNamespace(log=self._take, define_metric=self._ignore)

    def _start_run(self, *, run_id: str | None, run_name: str | None) -> Any:
        self.started.append({"run_id": run_id, "run_name": run_name})
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "chosen-by-the-server"))

    def _log_metrics(self, metrics: dict[str, float], *, step: int, synchronous: bool) -> None:
        assert not synchronous
        self._take({**metrics, "step": step})

    def _ignore(self, name: str, step_metric: str = "") -> None:
        """Only its arguments are checked."""

    def _take(self, figures: dict[str, float]) -> None:
        if self.broken:
            raise ConnectionError("gone")
        self.told.append(figures)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_every_tracker_gets_the_figures(tmp_path: Path, server: Server) -> None:
    Trackers(ALL, tmp_path, resumed_from=0).log(10, {"loss": 0.5, "memory/host": 2.0**30})
    assert written(tmp_path) == [(10, {"loss": 0.5, "memory/host": 2.0**30})]
    assert server.told == [{"loss": 0.5, "memory/host": 2.0**30, "step": 10}] * 2


def test_attempts_of_one_run_are_one_run_there_too(tmp_path: Path, server: Server) -> None:
    for resumed_from in (0, 100):
        Trackers(ALL, tmp_path, resumed_from=resumed_from)
    wandb = {"project": "digits", "name": "mnist", "id": "mnist-main", "resume": "allow", "dir": tmp_path}
    runs = [{"run_id": None, "run_name": "mnist"}, {"run_id": "chosen-by-the-server", "run_name": "mnist"}]
    assert server.started == [wandb, runs[0], wandb, runs[1]]


def test_tensorboard_drops_what_a_resumed_run_makes_again(tmp_path: Path) -> None:
    settings = ProgressConfig(tensorboard=True)
    Trackers(settings, tmp_path, resumed_from=0).log(120, {"loss": 0.5})
    Trackers(settings, tmp_path, resumed_from=100).log(110, {"loss": 0.4})
    files = sorted((tmp_path / contract.TENSORBOARD_DIR).iterdir())
    first, start, _ = events(files[1])
    assert first.file_version == "brain.Event:2"
    assert (start.session_log.status, start.step) == (SessionLog.START, 101)


def test_a_full_disk_is_said_once_and_half_an_event_spoils_no_later_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trackers = Trackers(ProgressConfig(tensorboard=True), tmp_path, resumed_from=0)
    trackers.log(1, {"loss": 1.0})
    [file] = (tmp_path / contract.TENSORBOARD_DIR).iterdir()
    file.unlink()
    file.symlink_to("/dev/full")
    for step in (2, 3, 4):
        trackers.log(step, {"loss": 1.0})
    assert [step for step, _ in written(tmp_path)] == [3, 4]
    [said] = capsys.readouterr().out.splitlines()
    assert said.startswith("TensorBoard cannot take figures (OSError: [Errno 28] No space left on device")


def test_a_server_that_is_gone_is_said_once_and_training_goes_on(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    trackers = Trackers(ALL, tmp_path, resumed_from=0)
    server.broken = True
    for step in (1, 2):
        trackers.log(step, {"loss": 1.0})
    assert capsys.readouterr().out.splitlines() == [
        f"{name} cannot take figures (ConnectionError: gone); training goes on"
        for name in ("Weights & Biases", "MLflow")
    ]
    assert [step for step, _ in written(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "settings"), [("wandb", ProgressConfig(wandb="digits")), ("mlflow", ProgressConfig(mlflow="digits"))]
)
def test_a_package_that_is_not_in_the_image_is_named_before_the_first_step(
    tmp_path: Path, name: str, settings: ProgressConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # Python's way to say that it cannot be imported
    with pytest.raises(ConfigError, match=f"train.progress.{name} is digits, and this image has no {name}") as caught:
        Trackers(settings, tmp_path, resumed_from=0)
    assert "docs/image.md" in caught.value.hint


def test_mlflow_without_a_server_is_a_wrong_setting(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI is not set"):
        Trackers(ALL, tmp_path, resumed_from=0)
    assert server.told == []


def test_nothing_is_imported_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorboardX", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    Trackers(ProgressConfig(), tmp_path, resumed_from=0).log(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []
