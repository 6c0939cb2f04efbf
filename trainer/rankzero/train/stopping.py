"""Leaving together: all ranks save after the same step when a pod of the run is being stopped."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from rankzero import contract
from rankzero.train.distributed import Ranks


class StopRequest:
    """Asks, after each step, whether this is the step after which to save and leave.

    The launcher asks every node by a file. Ranks see it after different steps, so each notes in the store after
    which step it saw it, and goes on. Ranks are never more than one step apart, since each step has a collective, and
    whoever has noted waits for its GPU, to which the loop may have handed several steps. So when the last of them notes
    step m, the others are at most at m + 1, and find all notes at the latest after m + 2, and all can agree on m + 3,
    without waiting for each other.
    """

    def __init__(self, ranks: Ranks) -> None:
        folder = os.environ.get(contract.ENV_ATTEMPT_DIR)
        self._file = Path(folder, contract.STOP_FILE) if folder else None
        self._ranks = ranks
        self._noted = False
        self._target: int | None = None

    def due(self, step: int) -> bool:
        """True after the agreed step. Every rank calls it after every optimizer step; a step has a collective."""
        if self._file is None:
            return False
        if self._target is None and (self._noted or self._file.exists()):
            self._agree(step)
        return self._target == step

    def _agree(self, step: int) -> None:
        store, keys = self._ranks.store, [f"stop/{rank}" for rank in range(self._ranks.world_size)]
        if not self._noted:
            store.set(keys[self._ranks.rank], str(step))
            self._noted = True
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)
        if store.check(keys):
            self._target = max(int(store.get(key)) for key in keys) + contract.STEPS_AHEAD
