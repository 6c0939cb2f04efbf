"""Which samples a rank sees, so that a run can go on in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from rankzero.errors import ConfigError


class EpochSampler(Sampler[int]):
    """Every epoch a new order, the same on all ranks, each rank its own part of it.

    The order depends on (seed, epoch) alone. Rank r takes positions r, r + world, ...; the tail that does not
    fill all ranks is left out, so all ranks make the same number of steps. A run goes on exactly where it was on as
    many ranks as before; on any number of ranks it does with :class:`rankzero.train.data.loader.Loader`.
    """

    def __init__(self, size: int, rank: int, world_size: int, seed: int = 0) -> None:
        self.size = size
        self.rank = rank
        self.world_size = world_size
        self.seed = seed
        self.epoch = 0
        self.consumed = 0

    def start(self, epoch: int, consumed: int = 0) -> None:
        """Choose the epoch, and how many of this rank's samples of it were consumed before. Every rank calls it."""
        self.epoch = epoch
        self.consumed = consumed

    def steps(self, batch_size: int) -> int:
        """Whole batches of ``batch_size`` samples that each rank gets in an epoch.

        Raises :class:`ConfigError` where that is none.
        """
        share = self.size // self.world_size
        if not share:
            raise ConfigError(
                f"the data set has {self.size} samples for {self.world_size} ranks",
                hint=f"allowed: {self.world_size} samples or more, or fewer ranks; does train.data name the right one?",
            )
        if share < batch_size:
            raise ConfigError(
                f"train.batchSize is {batch_size}, more than a rank's share of the data "
                f"({share} of {self.size} samples), so there is no step to make",
                hint=f"set train.batchSize to at most {share}, or train on fewer ranks",
            )
        return share // batch_size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.size, generator=generator)
        mine = order[: self.size // self.world_size * self.world_size][self.rank :: self.world_size]
        yield from mine[self.consumed :].tolist()

    def __len__(self) -> int:
        return self.size // self.world_size - self.consumed
