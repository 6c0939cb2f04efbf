"""The gradient's norm is taken of whole buffers where gradients fill them, and is the same as that of each of them."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankzero.train.parallel.norm import joined, norms


def parts_of(buffer: Tensor, *sizes: int) -> list[Tensor]:
    """Views of one buffer, one after the other."""
    return list(torch.split(buffer, list(sizes)))


def norm(parts: list[Tensor]) -> float:
    return float(torch.stack([part.double().norm() for part in parts]).norm())


def test_gradients_that_fill_a_bucket_in_any_order_are_one_tensor() -> None:
    buffer = torch.arange(12.0)
    parts = parts_of(buffer, 3, 6, 0, 3)
    parts[1] = parts[1].view(2, 3).t()  # DDP keeps the strides of its parameter
    random.Random(0).shuffle(parts)
    (one,) = joined(parts)
    assert torch.equal(one, buffer)


def test_gradients_of_several_buffers_and_types_are_not_mixed() -> None:
    first, second, alone = torch.ones(4), torch.ones(6, dtype=torch.bfloat16), torch.ones(2, 3).t()
    found = joined([*parts_of(second, 2, 4), alone, *parts_of(first, 1, 3)])
    assert {(one.dtype, one.shape) for one in found} == {
        (torch.bfloat16, (6,)),
        (torch.float32, (4,)),
        (torch.float32, (6,)),
    }


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_what_lies_between_gradients_and_is_none_does_not_count(left_out: int) -> None:
    """A padded shard, a parameter that got no gradient: the rest of the buffer may hold anything."""
    parts = parts_of(torch.tensor([1.0, 2.0, torch.nan, 3.0, 4.0, 5.0]).roll(2 * (left_out - 1)), 2, 2, 2)
    wanted = [part for number, part in enumerate(parts) if number != left_out]
    assert len(joined(wanted)) == 2
    assert norm(joined(wanted)) == norm(wanted)


@pytest.mark.parametrize(
    ("dtype", "number", "wanted", "precise"),
    [
        (torch.float16, 30_000.0, 300_000.0, torch.float32),  # beyond the largest number of fp16
        (torch.bfloat16, 1.0, 10.0, torch.float32),
        (torch.float32, 1e-3, 1e-2, torch.float32),
        (torch.float64, 1e30, 1e31, torch.float64),
    ],
)
def test_norms_of_sixteen_bits_are_taken_in_thirty_two(
    dtype: torch.dtype, number: float, wanted: float, precise: torch.dtype
) -> None:
    (found,) = norms([torch.full((100,), number, dtype=dtype)])
    assert found.dtype == precise
    assert float(found) == pytest.approx(wanted)


def test_gradients_of_several_precisions_have_the_norms_of_the_finest() -> None:
    found = norms([torch.ones(100, dtype=torch.bfloat16), torch.full((100,), 1e30, dtype=torch.float64)])
    assert [float(one) for one in found] == pytest.approx([10.0, 1e31])


def test_no_gradients_and_empty_ones_are_nothing() -> None:
    assert joined([]) == []
    assert [one.numel() for one in joined([torch.empty(0), torch.empty(0, 3)])] == [0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 3), st.randoms())
def test_the_norm_is_that_of_the_parts_whichever_of_them_there_are(
    sizes: list[int], padding: int, chance: random.Random
) -> None:
    buffer = torch.arange(1.0, sum(sizes) + padding + 1)
    parts = chance.sample(parts_of(buffer, *sizes, padding)[:-1], chance.randint(1, len(sizes)))
    assert norm(joined(parts)) == pytest.approx(norm(parts))
