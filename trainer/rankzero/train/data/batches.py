"""What a DataLoader's worker does: read the samples of a batch, with random numbers of their own, and collate them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, get_worker_info

from rankzero.errors import RankzeroError
from rankzero.train.data.dataset import ShardedDataset
from rankzero.train.data.shard_file import BadSampleError

Collate = Callable[[list[Any]], Any]


class Draw(NamedTuple):
    """The samples of a batch, and the seed of what is random about reading them."""

    seed: int
    ids: list[int]


@dataclass
class Read:
    """A batch as it comes from a worker. An error travels as a value, since PyTorch would wrap it in a traceback."""

    batch: Any = None
    bad: list[BadSampleError] = field(default_factory=list)
    error: RankzeroError | None = None

    def pin_memory(self) -> Read:
        """PyTorch's DataLoader calls it where batches go to a GPU."""
        pin: Any = torch.utils.data._utils.pin_memory.pin_memory
        return Read(pin(self.batch), self.bad, self.error)


class Batches(Dataset[Any]):
    """A data set whose items are batches; :class:`Draw` is their number."""

    def __init__(self, dataset: Any, collate: Collate, *, skip: bool) -> None:
        """``skip`` leaves out samples that are damaged, instead of failing at the first."""
        self._dataset, self._collate, self._skip = dataset, collate, skip
        self._is_random = not isinstance(dataset, ShardedDataset) or dataset.transform is not None

    def __getitem__(self, draw: Draw) -> Read:
        """Read and collate. The same draw gives the same batch, in whatever process."""
        read = Read()
        samples = []
        with _seeded(draw.seed) if self._is_random else nullcontext():
            for number in draw.ids:
                try:
                    samples.append(self._dataset[number])
                except BadSampleError as error:
                    read.bad.append(error)
                    if not self._skip or len(read.bad) == len(draw.ids):
                        read.error = error
                        return read
                except RankzeroError as error:
                    read.error = error
                    return read
                except Exception as error:
                    error.add_note(f"while sample {number} of the data set was read")
                    raise
            read.batch = self._collate(samples)
        return read


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers that follow from ``seed``; those of the training loop, in the same process, stay as they were."""
    numpy: Any = sys.modules.get("numpy")
    in_worker = get_worker_info() is not None
    if not in_worker:
        before = random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        if not in_worker:
            random.setstate(before[0])
            torch.set_rng_state(before[1])
            if numpy:
                numpy.random.set_state(before[2])
