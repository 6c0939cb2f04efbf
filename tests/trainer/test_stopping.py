"""All ranks save after the same step when a pod is being stopped (known failure A24)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import yaml

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.stopping import StopRequest
from tests.launch.pods import REPO, PodGroup
from tests.trainer.ranks import run
from tests.waiting import until


def step_until_asked(rank: int, folder: Path, appears: list[int], last: int) -> int:
    """Make steps with a collective each; the file appears to rank r after step ``appears[r]``. Returns the step."""
    own = folder / f"node-{rank}"
    own.mkdir()
    os.environ[contract.ENV_ATTEMPT_DIR] = str(own)
    file = own / contract.STOP_FILE
    store = dist.distributed_c10d._get_default_store()
    ranks = Ranks(rank, rank, dist.get_world_size(), torch.device("cpu"), store)
    stop = StopRequest(ranks)
    for step in range(1, last + 1):
        dist.all_reduce(torch.ones(1))
        if step == appears[rank]:
            file.touch()
        if stop.due(step):
            return step
    return 0


@pytest.mark.parametrize("appears", [[5, 5, 5], [5, 40, 12], [30, 1, 1]])
def test_ranks_that_are_asked_at_different_steps_agree_on_one(tmp_path: Path, appears: list[int]) -> None:
    steps = run(step_until_asked, 3, tmp_path, appears, 200)
    assert len(set(steps)) == 1
    assert max(appears) < steps[0] <= max(appears) + 4


def test_nobody_stops_while_one_node_was_not_asked(tmp_path: Path) -> None:
    assert run(step_until_asked, 2, tmp_path, [5, 10_000], 50) == [0, 0]


def test_a_script_without_a_launcher_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(contract.ENV_ATTEMPT_DIR, raising=False)
    with process_group(TrainConfig(backend="gloo")) as ranks:
        assert not StopRequest(ranks).due(1)


def test_who_has_been_asked_waits_for_its_gpu_and_nobody_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that never asks for a loss hands many steps to its GPU."""
    waits: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    monkeypatch.setenv(contract.ENV_ATTEMPT_DIR, str(tmp_path))
    gpu = torch.device("cuda", 1)
    stop = StopRequest(Ranks(0, 0, 2, gpu, dist.HashStore()))  # type: ignore[attr-defined]
    assert not stop.due(1)
    assert waits == []
    (tmp_path / contract.STOP_FILE).touch()
    assert not stop.due(2)
    assert not stop.due(3)
    assert waits == [gpu, gpu]


def step_of(group: PodGroup) -> int:
    """The step that rank 0's status page shows."""
    return int(group.pods[0].status().get("group", {}).get("progress", {}).get("step", 0))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("node_rank", [0, 1])
def test_a_pod_that_is_stopped_costs_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node_rank: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    group = PodGroup(tmp_path, nodes=2, procs=1, args=[], saveTimeout=60)
    for pod in group.pods:
        launch = {**group.launch, "script": str(REPO / "trainer/examples/mnist.py"), "args": []}
        train = {"backend": "gloo", "learningRate": 0.01, "checkpoint": {"everySteps": 100_000}}
        pod.config.write_text(yaml.safe_dump({"launch": {**launch, "statusPort": pod.status_port}, "train": train}))
    try:
        group.start()
        until(lambda: step_of(group) > 20, timeout=90, what="a few steps")
        group.pods[node_rank].terminate()
        assert group.pods[node_rank].wait() == contract.EXIT_REQUEUE
        group.pods[node_rank].start()
        assert [pod.wait(120) for pod in group.pods] == [0, 0]
    finally:
        group.stop()
        for pod in group.pods:
            print(pod.output)
    assert group.attempt(1)["cause"]["kind"] == "stopped"
    assert group.attempt(2)["resumed_from"] == group.attempt(1)["last_step"] > 20
