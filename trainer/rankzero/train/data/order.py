"""The order of samples in an epoch, from (seed, epoch) alone: the same on every rank, whatever their number."""

from __future__ import annotations

import bisect
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

import torch
from torch import Tensor

from rankzero.train.data.split import Span

KEPT = 4
"""Windows whose order is kept in memory; neighbouring batches share one."""


class Order:
    """Shards in a new order each epoch, and the samples of every ``window`` shards mixed.

    So a reader has few shards open at a time and reads each of them once an epoch. A data set without shards is one
    shard, mixed as a whole.
    """

    def __init__(self, shard_sizes: Sequence[int], *, seed: int, window: int, shuffle: bool = True) -> None:
        """``shard_sizes`` are samples of each shard. ``shuffle`` False keeps them as they are."""
        self.sizes = list(shard_sizes)
        self.samples = sum(self.sizes)
        self.mean_window = -(-self.samples * window // len(self.sizes))
        """Samples of a window, about."""
        self._first = [0, *accumulate(self.sizes)]
        self._seed, self._window, self._shuffle = seed, window, shuffle
        self._windows: OrderedDict[tuple[int, int], Tensor] = OrderedDict()
        self._epoch = -1
        self._shards: list[list[int]] = []
        self._starts: list[int] = []

    def ids(self, spans: Iterable[Span]) -> list[int]:
        """The numbers of the samples at these positions."""
        answer: list[int] = []
        for epoch, start, stop in spans:
            for window in self._overlapping(epoch, start, stop):
                begin = self._starts[window]
                answer += self._mixed(epoch, window)[max(start - begin, 0) : stop - begin].tolist()
        return answer

    def shards(self, spans: Iterable[Span]) -> list[int]:
        """The shards that hold the samples at these positions, in the order in which they are needed."""
        wanted = (
            self._shards[window]
            for epoch, start, stop in spans
            for window in list(self._overlapping(epoch, start, stop))
        )
        return list(dict.fromkeys(chain.from_iterable(wanted)))

    def fingerprint(self) -> str:
        """Two orders with the same are the same: 16 hexadecimal digits. It shows too if PyTorch draws other numbers."""
        probe = self.ids([Span(0, 0, min(self.samples, 64))])
        what = [self._seed, self._window, self._shuffle, self.sizes, probe]
        return hashlib.sha256(repr(what).encode()).hexdigest()[:16]

    def _overlapping(self, epoch: int, start: int, stop: int) -> range:
        if epoch != self._epoch:
            shards = self._permutation(len(self.sizes), epoch, "shards").tolist()
            self._shards = [shards[at : at + self._window] for at in range(0, len(shards), self._window)]
            self._starts = [0, *accumulate(sum(self.sizes[shard] for shard in window) for window in self._shards)]
            self._epoch = epoch
        return range(bisect.bisect_right(self._starts, start) - 1, bisect.bisect_left(self._starts, stop))

    def _mixed(self, epoch: int, window: int) -> Tensor:
        """Numbers of the samples of a window in their order, one-dimensional."""
        key = (epoch, window)
        if (found := self._windows.get(key)) is None:
            parts = [torch.arange(self._first[shard], self._first[shard + 1]) for shard in self._shards[window]]
            found = torch.cat(parts)
            self._windows[key] = found = found[self._permutation(len(found), epoch, window)]
            if len(self._windows) > KEPT:
                self._windows.popitem(last=False)
        return found

    def _permutation(self, length: int, epoch: int, what: object) -> Tensor:
        if not self._shuffle:
            return torch.arange(length)
        return torch.randperm(length, generator=torch.Generator().manual_seed(mixed_seed(self._seed, epoch, what)))


def mixed_seed(*parts: object) -> int:
    """A seed of 63 bits that follows from all parts, and from each of them."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1
