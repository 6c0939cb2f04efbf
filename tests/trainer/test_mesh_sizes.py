"""The arithmetic of the mesh, and the sentences for what makes none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankzero.config import LaunchConfig, RunConfig, TrainConfig, parse
from rankzero.errors import ConfigError
from rankzero.parallel_config import DIMENSIONS, ParallelConfig, Sizes

SIZES = st.integers(1, 6)


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from([None, *DIMENSIONS]))
def test_sizes_that_make_the_world_are_taken_as_they_are_and_one_of_them_can_be_the_rest(
    pipeline: int, replicate: int, shard: int, tensor: int, rest: str | None
) -> None:
    sizes = Sizes(pipeline, replicate, shard, tensor)
    wanted = {name: -1 if name == rest else getattr(sizes, name) for name in DIMENSIONS}
    assert parse(ParallelConfig, wanted, "train.parallel").sizes(sizes.world, 1) == sizes


@given(
    st.sampled_from(["auto", "ddp", "fsdp", "hsdp"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 8),
    st.sampled_from([4, 8]),
)
def test_every_strategy_makes_a_mesh_of_all_ranks(
    strategy: str, tensor: int, pipeline: int, nodes: int, per_node: int
) -> None:
    world = nodes * per_node * pipeline
    sizes = ParallelConfig(strategy=strategy, tensor=tensor, pipeline=pipeline).sizes(world, per_node)  # type: ignore[arg-type]
    assert sizes.world == world
    assert (sizes.tensor, sizes.pipeline) == (tensor, pipeline)
    if strategy == "hsdp":
        assert sizes.shard * sizes.tensor == per_node  # so that what is gathered in every layer stays in a node
    else:
        assert (sizes.shard == 1) == (strategy != "fsdp" or sizes.data == 1)


@given(st.integers(1, 40), SIZES, SIZES, SIZES, SIZES)
def test_sizes_make_a_mesh_of_all_ranks_or_an_error(
    world: int, pipeline: int, replicate: int, shard: int, tensor: int
) -> None:
    config = ParallelConfig(pipeline=pipeline, replicate=replicate, shard=shard, tensor=tensor)
    if pipeline * replicate * shard * tensor == world:
        assert config.sizes(world, 1).world == world
    else:
        with pytest.raises(ConfigError, match=f"do not make the world of {world}"):
            config.sizes(world, 1)


@pytest.mark.parametrize(
    ("wanted", "sentence", "allowed"),
    [
        (ParallelConfig(shard=3), "train.parallel: shard is 3: 3 ranks do not divide the world of 8", "1, 2, 4, 8"),
        (ParallelConfig(replicate=2, shard=2), "2, shard is 2: 4 ranks do not make the world of 8", "must be 8"),
        (ParallelConfig(replicate=1), "1 ranks do not make the world of 8", "1, 2, 4, 8"),
        (ParallelConfig(replicate=-1, shard=-1), "replicate is -1, shard is -1: only one", "-1 for one of them"),
        (ParallelConfig(strategy="ddp", shard=2), "train.parallel.shard is 2 and train.parallel.strategy ddp", "0, 1"),
        (ParallelConfig(strategy="fsdp", replicate=-1), "train.parallel.replicate is -1 and", "0, 1"),
        (ParallelConfig(strategy="data-parallel"), "which is one process, and there are 8 ranks", "ddp, fsdp"),
    ],
)  # fmt: skip
def test_what_makes_no_mesh_is_an_error_with_the_key_its_value_and_what_is_allowed(
    wanted: ParallelConfig, sentence: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)) as caught:
        wanted.sizes(8, 4)
    assert allowed in caught.value.hint


def test_a_mesh_that_does_not_fit_is_found_before_any_rank_has_started() -> None:
    launch = LaunchConfig(script="train.py", nodes=2, procs_per_node=4)
    with pytest.raises(ConfigError, match="3 ranks do not divide the world of 8"):
        RunConfig(launch, TrainConfig(parallel=ParallelConfig(shard=3)))
