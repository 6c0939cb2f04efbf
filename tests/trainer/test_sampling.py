from __future__ import annotations

import pytest

from rankzero.errors import ConfigError
from rankzero.train.sampling import EpochSampler


def orders(epoch: int, *, size: int = 103, world_size: int = 4, seed: int = 0) -> list[list[int]]:
    samplers = [EpochSampler(size, rank, world_size, seed) for rank in range(world_size)]
    for sampler in samplers:
        sampler.start(epoch)
    return [list(sampler) for sampler in samplers]


def test_every_sample_goes_to_one_rank_only_and_all_ranks_get_the_same_number() -> None:
    parts = orders(0)
    assert {len(part) for part in parts} == {103 // 4}
    flat = [index for part in parts for index in part]
    assert len(set(flat)) == len(flat)


def test_each_epoch_has_an_order_of_its_own_and_the_same_seed_repeats_it() -> None:
    assert orders(0) != orders(1)
    assert orders(1) == orders(1)
    assert orders(1, seed=1) != orders(1)


@pytest.mark.parametrize("consumed", [0, 1, 7, 25])
def test_going_on_in_the_middle_gives_exactly_the_rest(consumed: int) -> None:
    sampler = EpochSampler(103, 2, 4)
    sampler.start(5)
    whole = list(sampler)
    sampler.start(5, consumed)
    assert list(sampler) == whole[consumed:]
    assert len(sampler) == len(whole) - consumed


@pytest.mark.parametrize("size", [0, 3])
def test_a_data_set_smaller_than_the_world_gives_no_samples_and_is_refused_before_the_first_step(size: int) -> None:
    assert orders(0, size=size) == [[], [], [], []]
    with pytest.raises(ConfigError, match=f"the data set has {size} samples for 4 ranks") as caught:
        EpochSampler(size, 0, 4).steps(1)
    assert caught.value.hint.startswith("allowed: 4 samples or more, or fewer ranks")


def test_a_batch_larger_than_a_rank_s_share_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"train\.batchSize is 3, more than a rank's share") as caught:
        EpochSampler(8, 0, 4).steps(3)
    assert "set train.batchSize to at most 2" in caught.value.hint
