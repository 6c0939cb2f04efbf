"""A world that an operator counts in another way than the chart is refused, whatever it would do."""

from __future__ import annotations

import pytest

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.errors import ConfigError
from rankzero.launch import world
from tests.launch.conftest import MakeGroup

LAUNCH = LaunchConfig(script="/a.py", nodes=2, procs_per_node=4)
TOLD = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "1"}


def test_the_same_world_is_accepted() -> None:
    world.check(TOLD, LAUNCH, node_rank=1)


@pytest.mark.parametrize("told", [{}, {"PET_NPROC_PER_NODE": "auto"}, {"PET_NNODES": "1:4"}])
def test_without_a_word_or_a_number_there_is_nothing_to_contradict(told: dict[str, str]) -> None:
    world.check(told, LAUNCH, node_rank=0)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("PET_NNODES", "1", "2 (nodes)"),
        ("PET_NNODES", "3", "2 (nodes)"),
        ("PET_NPROC_PER_NODE", "1", "4 (processes per node)"),
        ("PET_NODE_RANK", "0", "1 (this pod's node rank)"),
    ],
)
def test_another_world_is_refused(name: str, value: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        world.check({**TOLD, name: value}, LAUNCH, node_rank=1)
    assert caught.value.message == f"{name} is {value}, but the run's settings say {wanted}"


@pytest.mark.slow
def test_a_pod_that_is_told_of_a_world_of_one_does_not_train_alone(make_group: MakeGroup) -> None:
    """A TrainJob whose pods each train alone reports that it is complete."""
    group = make_group("wait", nodes=2)
    pod = group.pods[0].start(PET_NNODES="1", RANKZERO_WORKLOAD="TrainJob/test")
    assert pod.wait() == contract.EXIT_USAGE
    assert "PET_NNODES is 1, but the run's settings say 2 (nodes)" in pod.termination_log.read_text()
    assert group.attempt(1) == {}
