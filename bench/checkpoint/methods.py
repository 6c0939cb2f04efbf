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
    def copies(self) -> int:
        """Bytes of copies that it keeps."""
        return 0

    def state(self) -> dict[str, Any]:
        """As torch.distributed.checkpoint wants it."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def place(self, step: int) -> Path:
        """Where to write; what was there before goes."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
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
    def copies(self) -> int:
        return sum(copy.nbytes for copy in self.checkpoints._staging.copies.values())


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
