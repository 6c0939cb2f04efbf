"""The examples in each form of parallelism that they offer, from the first step to the result."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
import yaml

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.train import distributed
from rankzero.train.distributed import Ranks
from tests.launch.pods import REPO
from tests.trainer.ranks import run
from tests.trainer.reporting import place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLES = REPO / "trainer/examples"
PER_NODE = 2
HEAVY = pytest.mark.long
FORMS = [
    pytest.param(2, {"strategy": "fsdp"}, id="fsdp", marks=HEAVY),
    pytest.param(4, {"strategy": "hsdp"}, id="hsdp", marks=HEAVY),
    pytest.param(2, {"pipeline": 2, "schedule": "gpipe"}, id="pipeline"),
    pytest.param(4, {"pipeline": 2}, id="ddp x pipeline", marks=HEAVY),
    pytest.param(4, {"pipeline": 2, "strategy": "fsdp"}, id="fsdp x pipeline", marks=HEAVY),
    pytest.param(1, {"strategy": "data-parallel"}, id="data-parallel"),
]
WITH_PLAN = [
    pytest.param(4, {"strategy": "fsdp", "tensor": 2}, id="fsdp x tensor", marks=HEAVY),
    pytest.param(4, {"pipeline": 2, "tensor": 2}, id="pipeline x tensor", marks=HEAVY),
]


@contextmanager
def group_that_is_there(config: TrainConfig) -> Iterator[Ranks]:  # noqa: ARG001 -- in the place of process_group
    yield place(dist.get_rank(), min(dist.get_world_size(), PER_NODE))


def example(rank: int, script: str, arguments: list[str], train: dict[str, Any], folder: str) -> dict[str, float]:
    """The result of the whole script, started as the launcher starts it but for the group, which is there already."""
    world_size, settings = dist.get_world_size(), Path(folder, f"train-{rank}.yaml")
    launch = {"script": script, "nodes": max(world_size // PER_NODE, 1), "procsPerNode": min(world_size, PER_NODE)}
    settings.write_text(yaml.safe_dump({"launch": launch, "train": train}), encoding="utf-8")
    os.environ |= {contract.ENV_CONFIG: str(settings), contract.ENV_STATE_DIR: folder}
    distributed.process_group = group_that_is_there
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / script))["main"]()
    dist.barrier()
    result: dict[str, float] = json.loads(Path(folder, contract.RESULT_FILE).read_text(encoding="utf-8"))
    return result


def settings_of(parallel: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"parallel": parallel, "accumulate": parallel.get("pipeline", 1), **more}


@pytest.mark.parametrize(("world_size", "parallel"), FORMS)
def test_digits_are_learned_and_judged_and_another_form_finds_the_same(
    world_size: int, parallel: dict[str, Any], tmp_path: Path
) -> None:
    train = settings_of(parallel, batchSize=80 // world_size, learningRate=0.02, lrScaling="none")
    [found, *_] = run(example, world_size, "mnist.py", [], train, str(tmp_path))
    assert found["test_accuracy"] > 0.7
    judges, form = (2, {"pipeline": 2}) if world_size == 1 else (1, {})
    (own := tmp_path / "judged").mkdir()
    [again, *_] = run(example, judges, "evaluate.py", [str(tmp_path)], settings_of(form), str(own))
    assert again["test_accuracy"] == pytest.approx(found["test_accuracy"], abs=0.0011)  # two of 2000 digits


@pytest.mark.parametrize(
    ("script", "world_size", "parallel"),
    [
        pytest.param(f"{name}.py", *form.values, id=f"{name}, {form.id}", marks=form.marks)
        for name, forms in {"gpt": FORMS + WITH_PLAN, "drill": FORMS}.items()
        for form in forms
    ],
)
def test_an_example_trains_in_each_form(script: str, world_size: int, parallel: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("to be or not to be, " * 200)
    train = settings_of(parallel, batchSize=4, data=str(tmp_path / "text"))
    [found, *_] = run(example, world_size, script, ["--steps", "3"], train, str(tmp_path))
    assert found["steps"] == 3


def refused(rank: int, script: str, folder: str) -> str:
    with pytest.raises(ConfigError) as caught:
        example(rank, script, [], settings_of({"tensor": 2}), folder)
    return str(caught.value)


@pytest.mark.parametrize("script", ["mnist.py", "drill.py"])
def test_a_form_that_an_example_has_no_plan_for_is_refused_before_the_first_step(script: str, tmp_path: Path) -> None:
    for sentence in run(refused, 2, script, str(tmp_path)):
        assert "train.parallel.tensor is 2 and the script gives no plan for Sequential" in sentence
