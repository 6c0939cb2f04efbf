"""Batches of one rank, epoch after epoch, from where a checkpoint was: PyTorch's DataLoader, told what to read.

data = Loader(ShardedDataset(url), rank, ranks, batch_size=32, workers=4)
data.load_state_dict(state)                      # or not
while data.epoch < epochs:
    for batch in data:                           # the rest of the epoch
        ...                                      # data.state_dict() now: after this batch
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from rankzero.errors import ConfigError
from rankzero.train.data.batches import Batches, Collate, Read
from rankzero.train.data.dataset import ShardedDataset
from rankzero.train.data.order import Order
from rankzero.train.data.position import Position
from rankzero.train.data.prefetch import Prefetcher
from rankzero.train.data.split import Span

WINDOW = 8
"""Shards whose samples are mixed."""


class Loader:
    """Iterating it gives this rank's batches of what is left of epoch :attr:`epoch`, and then that is the next one.

    Every sample of an epoch is read once, by one rank. The state is one for all ranks and knows nothing of their
    number, so that it may be another when the run goes on. The order of batches does not depend on the number of
    workers. A loop that is left in between goes on, when it is entered again, after the last batch it was given; what
    workers have read ahead counts for nothing until it is given out.

    What is random about reading a sample (augmentation with :mod:`random`, torch or numpy) follows from the seed and
    the sample's place in the epoch.
    """

    def __init__(
        self,
        dataset: Any,
        rank: int,
        ranks: int,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        window: int = WINDOW,
        drop_last: bool = False,
        workers: int = 0,
        prefetch: int = 2,
        max_bad: int = 0,
        collate: Collate = default_collate,
        pin_memory: bool | None = None,
    ) -> None:
        """Every rank calls it with the same arguments but ``rank``, its place among ``ranks`` that read different data.

        ``dataset`` is a :class:`ShardedDataset` or any map-style data set (``len()`` and ``[number]``), whose samples
        are mixed as a whole. ``batch_size`` is this rank's samples a step. The last batch of an epoch holds what is
        left, unless ``drop_last``. ``prefetch`` batches are read ahead by each of ``workers`` processes. ``max_bad`` is
        the number of damaged samples that this rank leaves out, each said, before it fails. ``pin_memory`` None means
        where there is a GPU.

        Raises :class:`ConfigError` where the data set is empty, has fewer samples or shards than there are ranks, or
        gives no whole batch where only such are wanted.
        """
        order = Order(_shard_sizes(dataset, ranks), seed=seed, window=window, shuffle=shuffle)
        content = dataset.index.fingerprint if isinstance(dataset, ShardedDataset) else ""
        self._fingerprint = content + order.fingerprint()
        self._max_bad = max_bad
        self.bad = 0
        """Damaged samples that this rank has left out."""
        self._ahead = _prefetcher(dataset, window)
        self._position = Position(
            order,
            rank,
            ranks,
            batch_size=batch_size,
            drop_last=drop_last,
            seed=seed,
            ahead=self._ahead,
        )
        if not self.steps_per_epoch:  # a run would end well, having learnt nothing
            share = len(dataset) // ranks
            raise ConfigError(
                f"a rank's share of the data is {share} samples, a step takes {batch_size}, and what fills no whole "
                "step is left out (train.dataLoader.dropLast)",
                hint=f"lower train.batchSize or train.accumulate to a product of at most {share}, or use fewer ranks",
            )
        self._loader: DataLoader[Any] = DataLoader(
            Batches(dataset, collate, skip=max_bad > 0),
            batch_size=None,
            sampler=self._position,
            num_workers=workers,
            prefetch_factor=prefetch if workers else None,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available() if pin_memory is None else pin_memory,
            collate_fn=_as_it_is,
            # Its own, since starting workers draws a number, and a resumed run starts them once more.
            generator=torch.Generator().manual_seed(seed),
        )

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch. Raises :class:`DataError` for what cannot be read."""
        self._position.go_to(self.epoch, self._position.left())
        try:
            for batch in map(self._judge, self._loader):
                self._position.taken += 1
                yield batch
        finally:
            if self._ahead is not None:
                self._ahead.rest()
        self._position.next_epoch()

    def __len__(self) -> int:
        """Batches that are left of the epoch, the same on all ranks."""
        return len(self._position)

    @property
    def epoch(self) -> int:
        """The epoch that is being read, from 0."""
        return self._position.epoch

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch with this number of ranks."""
        return self._position.whole().steps

    def state_dict(self) -> dict[str, Any]:
        """What is left of the epoch after the last batch given out; the same on every rank that was given as many."""
        left = [list(span) for span in self._position.left()]
        return {"epoch": self.epoch, "left": left, "order": self._fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, with any number of ranks. Every rank calls it with the same state, outside of the loop.

        Raises :class:`ConfigError` where data set, seed or settings of the order are not those of the state.
        """
        if state["order"] != self._fingerprint:
            raise ConfigError(
                "the checkpoint's place in the data is one in another order: train.data, train.seed or "
                "train.dataLoader.shuffle or .window have changed, or PyTorch draws other random numbers",
                hint="set them as they were, or begin another run with other parts: train.resume.from and parts",
            )
        self._position.go_to(state["epoch"], [Span(*span) for span in state["left"]])

    def _judge(self, read: Read) -> Any:
        try:
            if read.error is not None:
                raise read.error
            for bad in read.bad:
                self.bad += 1
                if self.bad > self._max_bad:
                    raise bad
                print(f"left out, {self.bad} of at most {self._max_bad}: {bad.message}", flush=True)
            return read.batch
        finally:
            del read  # an error that refers to itself would keep the workers alive (see Position)


def _prefetcher(dataset: Any, window: int) -> Prefetcher | None:
    """None where nothing is fetched. Raises :class:`ConfigError` for a cache smaller than what is read at once."""
    if not isinstance(dataset, ShardedDataset) or dataset.cache is None:
        return None
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    needed = 2 * window * ranks * max(shard.bytes for shard in dataset.index.shards)
    wanted = min(needed, sum(shard.bytes for shard in dataset.index.shards))
    if dataset.cache.limit and dataset.cache.limit < wanted:
        raise ConfigError(
            f"the cache {dataset.cache.folder} may hold {dataset.cache.limit} bytes; {ranks} ranks of this node that "
            f"mix {window} shards and fetch as many ahead need {wanted}",
            hint="raise train.dataLoader.cacheSize or the data set's cacheSize, lower train.dataLoader.window, or pack "
            "into smaller shards",
        )
    return Prefetcher(dataset.fetch)


def _as_it_is(read: Any) -> Any:
    return read


def _shard_sizes(dataset: Any, ranks: int) -> list[int]:
    if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        raise ConfigError(
            f"{type(dataset).__name__} is no map-style data set: it lacks len() or [number]",
            hint="an IterableDataset has no place to go on from; pack it, or give it both",
        )
    if not len(dataset):
        raise ConfigError("the data set is empty", hint="set train.data to one that holds samples")
    if len(dataset) < ranks:
        raise ConfigError(
            f"the data set has {len(dataset)} samples for {ranks} ranks", hint="use fewer ranks, or more data"
        )
    if not isinstance(dataset, ShardedDataset):
        return [len(dataset)]
    if len(dataset.shard_sizes) < ranks:
        raise ConfigError(
            f"the data set at {dataset.source.url} has {len(dataset.shard_sizes)} shards for {ranks} ranks",
            hint=f"allowed: {ranks} shards or more, better several times as many: rankzero pack --shards {8 * ranks}",
        )
    return dataset.shard_sizes
