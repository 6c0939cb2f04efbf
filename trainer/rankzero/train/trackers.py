"""Where else rank 0's figures go: TensorBoard's files, Weights & Biases, MLflow. Each is imported only where it is set.

What a tracker cannot take ends no training: :class:`Trackers` says it once and goes on.
"""

from __future__ import annotations

import importlib
import os
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rankzero import contract
from rankzero.config import ProgressConfig
from rankzero.errors import ConfigError
from rankzero.files import read_json, write_json


class Tracker(Protocol):
    """Takes figures; any exception means that it could not."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Figures by name, of optimizer step ``step``; each is a finite number."""


class Trackers:
    """All that the settings ask for. Rank 0 makes them.

    Raises :class:`ConfigError` where a package is missing: that is known before the first step. A server that does not
    answer is no reason not to train.
    """

    def __init__(self, settings: ProgressConfig, folder: Path, *, resumed_from: int) -> None:
        wanted: list[tuple[str, Callable[[], Tracker]]] = []
        if settings.tensorboard:
            protos = _package("tensorboardX", "train.progress.tensorboard is true", "tensorboardX")
            wanted.append(("TensorBoard", lambda: TensorBoard(protos, folder, resumed_from)))
        if settings.wandb:
            wandb = _package("wandb", f"train.progress.wandb is {settings.wandb}", "wandb")
            wanted.append(("Weights & Biases", lambda: WeightsAndBiases(wandb, settings.wandb, folder)))
        if settings.mlflow:
            mlflow = _package("mlflow", f"train.progress.mlflow is {settings.mlflow}", "mlflow or mlflow-skinny")
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                raise ConfigError(
                    f"train.progress.mlflow is {settings.mlflow}, and MLFLOW_TRACKING_URI is not set",
                    hint="set it in network.env (or by secretEnv) to the address of the MLflow server",
                )
            wanted.append(("MLflow", lambda: MLflow(mlflow, settings.mlflow, folder)))
        self._complained: set[str] = set()
        self._trackers: dict[str, Tracker] = {}
        for name, make in wanted:
            self._try(name, partial(self._open, name, make))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Hand the figures to all."""
        for name, tracker in self._trackers.items():
            self._try(name, partial(tracker.log, step, figures))

    def _open(self, name: str, make: Callable[[], Tracker]) -> None:
        self._trackers[name] = make()

    def _try(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # anything may come from a network and other people's packages
            if name not in self._complained:
                self._complained.add(name)
                print(f"{name} cannot take figures ({type(error).__name__}: {error}); training goes on", flush=True)


class TensorBoard:
    """Writes event files by itself, each event whole.

    tensorboardX's own writer hands events to a thread, which a full disk ends; the queue to it then fills, and training
    hangs. ``package`` is tensorboardX, for its messages and checksum.
    """

    def __init__(self, package: Any, folder: Path, resumed_from: int) -> None:
        self._event = importlib.import_module(f"{package.__name__}.proto.event_pb2")
        self._summary = importlib.import_module(f"{package.__name__}.proto.summary_pb2").Summary
        self._checksum = importlib.import_module(f"{package.__name__}.record_writer").masked_crc32c
        self._folder = folder / contract.TENSORBOARD_DIR
        self._file: Path | None = None
        self._resumed_from = resumed_from

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Append one event."""
        values = [self._summary.Value(tag=name, simple_value=figure) for name, figure in figures.items()]
        event = self._event.Event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        try:
            file = self._file or self._begin()
            with file.open("ab") as out:
                out.write(self._record(event))
        except OSError:
            self._file = None  # it may end in half an event, after which nothing is read: the next one begins another
            raise
        self._file = file

    def _begin(self) -> Path:
        """A new file; TensorBoard drops what older ones have of later steps."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"events.out.tfevents.{time.time():.6f}.rank0"
        first = self._event.Event(wall_time=time.time(), file_version="brain.Event:2")
        log = self._event.SessionLog(status=self._event.SessionLog.START)
        start = self._event.Event(wall_time=time.time(), step=self._resumed_from + 1, session_log=log)
        file.write_bytes(self._record(first) + self._record(start))
        return file

    def _record(self, event: Any) -> bytes:
        """A TFRecord: length, its checksum, the data, their checksum."""
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        return b"".join(
            [length, struct.pack("<I", self._checksum(length)), data, struct.pack("<I", self._checksum(data))]
        )


class WeightsAndBiases:
    """One run for all attempts. Its own environment variables (WANDB_API_KEY, WANDB_MODE, ...) count."""

    def __init__(self, package: Any, project: str, folder: Path) -> None:
        name, run_id = os.environ.get(contract.ENV_RUN_NAME, ""), os.environ.get(contract.ENV_RUN_ID, "")
        folder.mkdir(parents=True, exist_ok=True)  # where it makes one of its own
        self._run = package.init(
            project=project, name=name or None, id=f"{name}-{run_id}" if run_id else None, resume="allow", dir=folder
        )
        # Steps that are made again after a resume come a second time; by its own step they would be refused.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """It sends them from a process of its own."""
        self._run.log({**figures, "step": step})


MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Unless the user says otherwise: by its own choice all ranks would wait minutes for a server that is off."""


class MLflow:
    """One run for all attempts; the state directory keeps its id, which the server chooses."""

    def __init__(self, package: Any, experiment: str, folder: Path) -> None:
        self._mlflow = package
        for name, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(name, value)
        file = folder / contract.MLFLOW_RUN_FILE
        known = (read_json(file, damaged_is_absent=True) or {}).get("run_id")
        package.set_experiment(experiment)
        run = package.start_run(run_id=known, run_name=os.environ.get(contract.ENV_RUN_NAME))
        write_json(file, {"experiment": experiment, "run_id": run.info.run_id})

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """It sends them from a thread of its own."""
        self._mlflow.log_metrics(dict(figures), step=step, synchronous=False)


def _package(name: str, setting: str, install: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{setting}, and this image has no {name}: {error}",
            hint=f"add {install} to the image (docs/image.md), or leave the setting out",
        ) from error
