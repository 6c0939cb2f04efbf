"""Who reads what: arithmetic on positions of the epoch's order. No PyTorch here.

The samples that are left are spans of positions in an order that depends on (seed, epoch) alone. They are dealt to the
ranks as equal consecutive parts, so that each rank, and with it each node, reads shards of its own. All ranks take the
same number of batches at the same pace, so any of them knows what all have taken without asking, and what is left can
be dealt anew to any other number of ranks: every sample is taken exactly once, whatever the world size was or becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """Positions ``start`` to ``stop``, the last one excluded, in the order of ``epoch``."""

    epoch: int
    start: int
    stop: int


def size(spans: Iterable[Span]) -> int:
    """Positions in all."""
    return sum(span.stop - span.start for span in spans)


def take(spans: Sequence[Span], first: int, last: int) -> list[Span]:
    """The part from position ``first`` to ``last`` (excluded), counted over all spans."""
    taken, at = [], 0
    for span in spans:
        length = span.stop - span.start
        start, stop = max(first - at, 0), min(last - at, length)
        if start < stop:
            taken.append(Span(span.epoch, span.start + start, span.start + stop))
        at += length
    return taken


def join(spans: Iterable[Span]) -> list[Span]:
    """The same positions in the same order, as few spans as may be."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].epoch == span.epoch and joined[-1].stop == span.start:
            joined[-1] = joined[-1]._replace(stop=span.stop)
        else:
            joined.append(span)
    return joined


@dataclass(frozen=True)
class Plan:
    """The rest of an epoch for ``ranks`` ranks that read different data.

    Every rank takes :attr:`steps` batches of ``batch_size`` samples; the last one holds what is left, from one sample
    to ``batch_size`` + 1, unless ``drop_last``: then it is whole, and the rest is left out. Where fewer samples than
    ranks are left there is no step, and they stay for the next epoch.
    """

    spans: tuple[Span, ...]
    ranks: int
    batch_size: int
    drop_last: bool = False

    @cached_property
    def samples(self) -> int:
        """Samples in all."""
        return size(self.spans)

    @cached_property
    def steps(self) -> int:
        """Batches of each rank."""
        least = self.samples // self.ranks
        return least // self.batch_size if self.drop_last else -(-least // self.batch_size)

    def bounds(self, rank: int) -> tuple[int, int]:
        """First position of a rank's part and the one after its last: the first ranks have one more where need be."""
        each, more = divmod(self.samples, self.ranks)
        return rank * each + min(rank, more), (rank + 1) * each + min(rank + 1, more)

    def batch(self, rank: int, step: int) -> list[Span]:
        """The positions of a rank's batch, from 0."""
        first, last = self.bounds(rank)
        begin = first + step * self.batch_size
        is_rest = step == self.steps - 1 and not self.drop_last
        return take(self.spans, begin, last if is_rest else begin + self.batch_size)

    def left(self, steps: int) -> list[Span]:
        """What no rank has taken after so many steps of all."""
        if steps and steps == self.steps and not self.drop_last:
            return []
        parts = []
        for rank in range(self.ranks):
            first, last = self.bounds(rank)
            parts += take(self.spans, first + steps * self.batch_size, last)
        return join(parts)
