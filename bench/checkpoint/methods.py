"""The ways to save that are compared. Each holds the loop up for as long as its ``save`` and its waits take."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_saver as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint import Checkpoints


class Method:
    """One way to save a model and its optimizer; only the newest of its files stays."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.folder, self.model, self.optimizer = folder, model, optimizer

    def save(self, step: int) -> None:
        """Returns when the loop may go on."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until everything is written."""

    @property
    def is_writing(self) -> bool:
        """Whether the last save is not durable yet."""
        return False

    @property
    def waited(self) -> float:
        """Seconds that the optimizer has waited for the last save."""
        return 0.0

    def clear(self) -> None:
        """Remove what the last save wrote, where the way itself does not. Not a part of the save."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def state(self) -> dict[str, Any]:
        """As torch.distributed.checkpoint wants it."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def place(self, step: int) -> Path:
        """Where to write."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"step-{step}"


class TorchSave(Method):
    """torch.save, and a sync, without which a loss of power takes it."""

    def save(self, step: int) -> None:
        with self.place(step).open("wb") as file:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())


class DcpSave(Method):
    """torch.distributed.checkpoint.save as it comes."""

    def save(self, step: int) -> None:
        dcp.save(self.state(), checkpoint_id=self.place(step))


class DcpAsyncSave(Method):
    """torch.distributed.checkpoint.async_save as it comes: it copies, then writes in a thread."""

    pending: Future[Any] | None = None

    def save(self, step: int) -> None:
        self.finish()
        pending = dcp.async_save(self.state(), checkpoint_id=self.place(step))
        assert isinstance(pending, Future)
        self.pending = pending

    def finish(self) -> None:
        if self.pending is not None:
            self.pending.result()

    @property
    def is_writing(self) -> bool:
        return self.pending is not None and not self.pending.done()


class Rankzero(Method):
    """rankzero's, synchronous or not."""

    asynchronous = True

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(folder, model, optimizer)
        self.checkpoints = Checkpoints(folder, CheckpointConfig(keep=1, asynchronous=self.asynchronous))
        self.checkpoints.track(model=model, optimizer=optimizer)

    def save(self, step: int) -> None:
        assert self.checkpoints.save(step)

    def finish(self) -> None:
        self.checkpoints.close()

    @property
    def is_writing(self) -> bool:
        return self.checkpoints._background.is_busy

    @property
    def waited(self) -> float:
        return self.checkpoints._staging.waited

    def clear(self) -> None:
        """It does so by itself, beside the training, and that counts."""


class RankzeroSynchronous(Rankzero):
    """With train.checkpoint.asynchronous: false."""

    asynchronous = False


METHODS: dict[str, type[Method]] = {
    "torch.save": TorchSave,
    "dcp.save": DcpSave,
    "dcp.async_save": DcpAsyncSave,
    "rankzero, asynchronous: false": RankzeroSynchronous,
    "rankzero": Rankzero,
}
