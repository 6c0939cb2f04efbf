"""Ways to spread a training that its ranks do not make are refused at install, and the same as the launcher does."""

from __future__ import annotations

from typing import Any

import pytest

from rankzero.config import LaunchConfig, RunConfig, TrainConfig, parse
from rankzero.errors import ConfigError
from tests.chart.rendering import minimal, refusals, render

KINDS = ["StatefulSet", "Job", "PyTorchJob", "TrainJob"]
RELATIONS: list[tuple[int, int, dict[str, Any], str]] = [
    (
        2, 4, {"parallel": {"shard": 3}},
        "train.parallel: shard is 3, so 3 ranks belong together, which do not divide the 8 that nodes (2) and "
        "procsPerNode (4) make: choose sizes whose product divides 8, or other nodes",
    ),
    (
        2, 4, {"parallel": {"replicate": 2, "shard": 2}},
        "train.parallel: replicate is 2, shard is 2, which makes a world of 4, but nodes (2) and procsPerNode (4) "
        "make 8: choose sizes whose product is 8, or leave one of them to the rest with -1",
    ),
    (
        2, 1, {"parallel": {"replicate": 1}},
        "train.parallel: every size is 1, which makes a world of 1, but nodes (2) and procsPerNode (1) make 2: "
        "choose sizes whose product is 2, or leave one of them to the rest with -1",
    ),
    (
        1, 2, {"parallel": {"strategy": "hsdp", "shard": 4}},
        "train.parallel: shard is 4, so 4 ranks belong together, which do not divide the 2 that nodes (1) and "
        "procsPerNode (2) make: choose sizes whose product divides 2, or other nodes",
    ),
    (
        1, 4, {"parallel": {"replicate": -1, "shard": -1}},
        "train.parallel has replicate and shard as -1, and only one of them can be the rest of the ranks: "
        "set the others to numbers",
    ),
    (
        1, 2, {"parallel": {"strategy": "ddp", "shard": 2}},
        "train.parallel.shard is 2 but train.parallel.strategy is ddp, which shards nothing: "
        "remove it or set the strategy to hsdp",
    ),
    (
        1, 2, {"parallel": {"strategy": "fsdp", "replicate": -1}},
        "train.parallel.replicate is -1 but train.parallel.strategy is fsdp, which replicates nothing: "
        "remove it or set the strategy to hsdp",
    ),
    (
        1, 2, {"parallel": {"strategy": "data-parallel"}},
        "train.parallel.strategy is data-parallel, which is one process, but nodes is 1 and a pod has 2: "
        "set nodes and procsPerNode to 1, or the strategy to ddp",
    ),
    (
        2, 2, {"parallel": {"pipeline": -1, "replicate": 1}, "accumulate": 2},
        "train.accumulate is 2 but train.parallel.pipeline makes 4 stages, most of which would wait: set "
        "train.accumulate to at least 4; four times as many micro-batches keep the stages busy",
    ),
    (
        1, 1, {"parallel": {"strategy": "data-parallel"}, "compile": True},
        "train.compile is true but train.parallel.strategy is data-parallel, whose copies of the model do without: "
        "remove it or set the strategy to ddp",
    ),
    (
        1, 1, {"parallel": {"strategy": "data-parallel"}, "precision": "bf16"},
        "train.precision is bf16 but train.parallel.strategy is data-parallel, whose copies of the model do without: "
        "remove it or set the strategy to ddp",
    ),
    (
        1, 1, {"precision": "fp16"},
        "train.precision is fp16 but resources.gpus is 0, and fp16 needs a GPU: "
        "ask for GPUs or set train.precision to bf16 or fp32",
    ),
    (
        1, 1, {"checkpoint": {"everySteps": 0}},
        "train.checkpoint.everySteps and train.checkpoint.everyMinutes are both 0, so no checkpoint would be written: "
        "set one of them, or train.checkpoint.interval to auto",
    ),
]  # fmt: skip


def values(nodes: int, procs: int, train: dict[str, Any], kind: str = "StatefulSet") -> dict[str, Any]:
    changes = {"nodes": nodes, "procsPerNode": procs, "train": train, "resources.gpus": 0, "workload.kind": kind}
    return minimal(changes)


@pytest.mark.parametrize(("nodes", "procs", "train", "sentence"), RELATIONS, ids=lambda case: str(case)[:60])
def test_a_training_that_its_ranks_do_not_make_is_refused_with_one_sentence(
    nodes: int, procs: int, train: dict[str, Any], sentence: str
) -> None:
    assert refusals(values(nodes, procs, train)) == [sentence]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_workload_refuses_it(kind: str) -> None:
    [sentence] = refusals(values(2, 4, {"parallel": {"shard": 3}}, kind))
    assert "3 ranks belong together, which do not divide the 8" in sentence


def test_ranks_that_follow_from_the_gpus_count() -> None:
    changes = {"nodes": 2, "resources.gpus": 8, "train.parallel": {"tensor": 3}}
    [sentence] = refusals(minimal(changes))
    assert "which do not divide the 16 that nodes (2) and procsPerNode (8) make" in sentence


MESHES: list[tuple[int, int, dict[str, Any]]] = [
    (2, 4, {}),
    (2, 4, {"strategy": "fsdp"}),
    (2, 4, {"strategy": "fsdp", "tensor": 4}),
    (2, 4, {"strategy": "fsdp", "shard": 4}),
    (2, 4, {"strategy": "fsdp", "tensor": -1}),
    (2, 4, {"strategy": "hsdp"}),
    (3, 4, {"strategy": "hsdp", "tensor": 2}),
    (2, 4, {"strategy": "hsdp", "tensor": 8}),
    (2, 3, {"strategy": "hsdp", "tensor": 2}),
    (2, 4, {"strategy": "hsdp", "replicate": 2}),
    (2, 4, {"strategy": "hsdp", "replicate": -1}),
    (2, 4, {"strategy": "hsdp", "replicate": 3}),
    (2, 4, {"strategy": "hsdp", "pipeline": -1}),
    (2, 4, {"strategy": "ddp", "shard": 1, "tensor": 8}),
    (2, 4, {"shard": -1, "replicate": 4}),
    (2, 4, {"shard": 8, "tensor": 2}),
    (2, 4, {"pipeline": 2, "tensor": 2}),
    (2, 4, {"pipeline": 2, "tensor": -1}),
    (2, 4, {"pipeline": 16}),
    (1, 1, {"strategy": "data-parallel"}),
    (1, 1, {"tensor": 2}),
]


@pytest.mark.parametrize(("nodes", "procs", "parallel"), MESHES, ids=str)
def test_chart_and_launcher_agree_on_which_sizes_make_the_world(
    nodes: int, procs: int, parallel: dict[str, Any]
) -> None:
    """One of them computes in Go's templates and the other in Python."""
    train = {"parallel": parallel, "accumulate": 16}
    launch = LaunchConfig(script="a.py", nodes=nodes, procs_per_node=procs)
    try:
        RunConfig(launch, parse(TrainConfig, train, "train"))
    except ConfigError:
        assert refusals(values(nodes, procs, train))
    else:
        assert render(values(nodes, procs, train))


@pytest.mark.parametrize(
    "train",
    [
        {"checkpoint": {"everySteps": 0, "everyMinutes": 5}},
        {"checkpoint": {"everySteps": 0, "interval": "auto"}},
        {"parallel": {"pipeline": 2}, "accumulate": 2},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_what_can_be_trained_is_accepted(train: dict[str, Any]) -> None:
    assert render(values(1, 2, train))
