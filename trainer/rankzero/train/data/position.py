"""Where a rank is in the data, and what it reads next: a DataLoader's sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rankzero.train.data.batches import Draw
from rankzero.train.data.order import Order, mixed_seed
from rankzero.train.data.split import Plan, Span, take

Ahead = Callable[[list[int]], None]
"""Is told which shards are needed next, in their order."""


class Position:
    """Counts the batches that the training loop was given; those that workers read ahead count for nothing.

    It knows nothing of the loader that has it. A cycle of references would leave the end of the workers to the garbage
    collector, which closes the queue through which they are told, so that PyTorch waits for each of them for 5 s.
    """

    def __init__(
        self, order: Order, rank: int, ranks: int, *, batch_size: int, drop_last: bool, seed: int, ahead: Ahead | None
    ) -> None:
        """At the beginning of epoch 0."""
        self.epoch = 0
        self.taken = 0
        """Batches given of :attr:`plan`."""
        self._order, self._rank, self._ranks = order, rank, ranks
        self._batch_size, self._drop_last, self._seed, self._ahead = batch_size, drop_last, seed, ahead
        self.plan = self.whole()

    def __iter__(self) -> Iterator[Draw]:
        """What the rank's batches are to be, from the next one on."""
        _, end = self.plan.bounds(self._rank)
        told: list[int] = []
        for step in range(self.taken, self.plan.steps):
            spans = self.plan.batch(self._rank, step)
            if self._ahead is not None:
                begin = self.plan.bounds(self._rank)[0] + step * self._batch_size
                coming = take(self.plan.spans, begin, min(begin + self._order.mean_window + self._batch_size, end))
                if (shards := self._order.shards(coming)) != told:
                    told = shards
                    self._ahead(shards)
            yield Draw(mixed_seed(self._seed, *spans[0]), self._order.ids(spans))

    def __len__(self) -> int:
        return self.plan.steps - self.taken

    def left(self) -> list[Span]:
        """What no rank has been given."""
        return self.plan.left(self.taken)

    def go_to(self, epoch: int, left: list[Span]) -> None:
        """Read these next."""
        self.epoch, self.taken = epoch, 0
        self.plan = self._planned(left)

    def next_epoch(self) -> None:
        """Begin it. Without ``drop_last`` something is left only where it was too little for all ranks."""
        carried = [] if self._drop_last else self.left()
        self.go_to(self.epoch + 1, [*carried, Span(self.epoch + 1, 0, self._order.samples)])

    def whole(self) -> Plan:
        """The plan of a whole epoch."""
        return self._planned([Span(self.epoch, 0, self._order.samples)])

    def _planned(self, spans: list[Span]) -> Plan:
        return Plan(tuple(spans), self._ranks, self._batch_size, self._drop_last)
