"""Every position goes to one rank exactly once, over any number of ranks in turn (known failure A23)."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rankzero.train.data.order import Order
from rankzero.train.data.split import Plan, Span, join, size, take

ranks = st.integers(1, 9)
batch_sizes = st.integers(1, 7)
sizes = st.integers(0, 300)


def whole(samples: int) -> tuple[Span, ...]:
    return (Span(0, 0, samples),)


def positions(spans: list[Span]) -> list[tuple[int, int]]:
    return [(span.epoch, position) for span in spans for position in range(span.start, span.stop)]


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """Pieces of two epochs, none twice, as several kills leave them."""
    cuts = sorted(draw(st.sets(st.integers(0, 60), max_size=10)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    return [Span(epoch, start, stop) for epoch in (3, 4) for start, stop in pairs]


@given(spans(), st.integers(0, 130), st.integers(0, 130))
def test_a_part_of_spans_is_that_part_of_their_positions(given_spans: list[Span], first: int, last: int) -> None:
    found = take(given_spans, first, last)
    assert positions(found) == positions(given_spans)[first : max(first, last)]
    assert all(span.start < span.stop for span in found)


@given(spans())
def test_joined_spans_are_the_same_positions_and_none_touches_the_next(given_spans: list[Span]) -> None:
    cut = [piece for span in given_spans for piece in take([span], 0, 3) + take([span], 3, 99)]
    joined = join(cut)
    assert positions(joined) == positions(given_spans)
    assert all(a.epoch != b.epoch or a.stop != b.start for a, b in itertools.pairwise(joined))


@given(spans(), ranks, batch_sizes, st.booleans())
def test_all_ranks_take_as_many_batches_and_none_is_empty(
    given_spans: list[Span], count: int, batch_size: int, drop_last: bool
) -> None:
    plan = Plan(tuple(given_spans), count, batch_size, drop_last)
    batches = [[size(plan.batch(rank, step)) for step in range(plan.steps)] for rank in range(count)]
    for sizes_of_rank in batches:
        assert all(one == batch_size for one in sizes_of_rank[:-1])
        assert all(1 <= one <= (batch_size if drop_last else batch_size + 1) for one in sizes_of_rank)
    seen = Counter(
        position
        for rank in range(count)
        for step in range(plan.steps)
        for position in positions(plan.batch(rank, step))
    )
    assert set(seen.values()) <= {1}
    left = positions(plan.left(plan.steps))
    assert set(seen) | set(left) == set(positions(given_spans))
    assert len(left) < (count * batch_size if drop_last else count)


@given(sizes, batch_sizes, st.lists(st.tuples(ranks, st.integers(0, 20)), max_size=5), ranks)
def test_over_kills_and_other_numbers_of_ranks_every_sample_is_taken_once(
    samples: int, batch_size: int, attempts: list[tuple[int, int]], last: int
) -> None:
    left = list(whole(samples))
    seen: Counter[tuple[int, int]] = Counter()
    for count, steps in [*attempts, (last, 10**6)]:
        plan = Plan(tuple(left), count, batch_size)
        done = min(steps, plan.steps)
        for rank in range(count):
            for step in range(done):
                seen.update(positions(plan.batch(rank, step)))
        left = plan.left(done)
    assert set(seen.values()) <= {1}
    assert set(seen) | set(positions(left)) == set(positions(list(whole(samples))))
    assert size(left) < last  # too few to give every rank one: they are first in the next epoch


@given(st.integers(1, 300), ranks, batch_sizes, st.data())
def test_with_as_many_ranks_a_resumed_epoch_has_the_batches_of_an_undisturbed_one(
    samples: int, count: int, batch_size: int, data: st.DataObject
) -> None:
    plan = Plan(whole(samples), count, batch_size)
    done = data.draw(st.integers(0, plan.steps))
    resumed = Plan(tuple(plan.left(done)), count, batch_size)
    assert resumed.steps == plan.steps - done
    for rank in range(count):
        for step in range(resumed.steps):
            assert positions(resumed.batch(rank, step)) == positions(plan.batch(rank, done + step))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_an_order_has_every_sample_once_and_stays_within_a_few_shards(
    shard_sizes: list[int], window: int, epoch: int, shuffle: bool
) -> None:
    order = Order(shard_sizes, seed=1, window=window, shuffle=shuffle)
    samples = sum(shard_sizes)
    ids = order.ids([Span(epoch, 0, samples)])
    assert sorted(ids) == list(range(samples))
    assert (ids == sorted(ids)) or shuffle
    cut = samples // 2
    assert order.ids([Span(epoch, 0, cut)]) + order.ids([Span(epoch, cut, samples)]) == ids
    assert sorted(order.shards([Span(epoch, 0, samples)])) == list(range(len(shard_sizes)))
    first = max(shard_sizes) * window
    assert len(order.shards([Span(epoch, 0, min(first, samples))])) <= max(2, -(-first // min(shard_sizes))) * window


def test_each_epoch_and_each_seed_has_an_order_of_its_own() -> None:
    orders = [Order([10] * 8, seed=seed, window=2).ids([Span(epoch, 0, 80)]) for seed in range(2) for epoch in range(2)]
    assert len({tuple(one) for one in orders}) == 4
    assert orders[0] == Order([10] * 8, seed=0, window=2).ids([Span(0, 0, 80)])
    assert Order([10] * 8, seed=0, window=2).fingerprint() != Order([10] * 8, seed=1, window=2).fingerprint()
