"""The example on packed text: as a program, under torchrun, and over a pod that goes in the middle of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rankzero import contract
from rankzero.cli import main
from tests.launch.pods import REPO, PodGroup
from tests.trainer.programs import TORCHRUN, losses_of
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = REPO / "trainer/examples/packed.py"
PIECES, BATCH, EPOCHS = 160, 4, 2


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text in pieces of 16 bytes and one."""
    folder = tmp_path_factory.mktemp("text")
    text = "".join(f"{number} bottles on the wall; " for number in range(PIECES))[: 16 * PIECES + 1]
    (folder / "song.txt").write_text(text)
    with pytest.raises(SystemExit, match="0"):
        main(["pack", "text", str(folder / "song.txt"), str(folder / "shards"), "--length", "16"])
    return folder / "shards"


@pytest.mark.parametrize(("by", "ranks"), [((), 1), (TORCHRUN, 2)], ids=["python", "torchrun"])
def test_it_runs_as_a_program_and_under_torchrun(shards: Path, tmp_path: Path, by: tuple[str, ...], ranks: int) -> None:
    config = tmp_path / "train.yaml"
    train = {"data": str(shards), "batchSize": BATCH, "epochs": EPOCHS, "accumulate": 2, "logEverySteps": 1}
    config.write_text(yaml.safe_dump({"launch": {"script": "x", "procsPerNode": ranks}, "train": train}))
    losses = losses_of(*by, str(SCRIPT), **{contract.ENV_CONFIG: str(config)})
    assert len(losses) == EPOCHS * PIECES // (2 * BATCH * ranks)
    assert losses[-1] < losses[0] - 0.5


def test_a_pod_that_goes_in_the_middle_of_an_epoch_leaves_no_piece_out(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epochs have as many steps as without it; which pieces they hold is tested in tests/trainer/data."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pods = PodGroup(tmp_path, nodes=2, procs=1, args=[])
    train = {"backend": "gloo", "data": str(shards), "batchSize": BATCH, "epochs": EPOCHS, "logEverySteps": 1}
    more = {"dataLoader": {"workers": 1}, "checkpoint": {"everySteps": 1000}}
    for pod in pods.pods:
        launch = {**pods.launch, "script": str(SCRIPT), "statusPort": pod.status_port}
        pod.config.write_text(yaml.safe_dump({"launch": launch, "train": {**train, **more}}))
    try:
        pods.start()
        until(lambda: "step 3/" in pods.pods[0].output, timeout=250, what="three steps")
        pods.pods[1].terminate()
        assert pods.pods[1].wait(250) == contract.EXIT_REQUEUE
        pods.pods[1].start()
        assert [pod.wait(250) for pod in pods.pods] == [0, 0]
    finally:
        pods.stop()
        for pod in pods.pods:
            print(pod.output)
    assert 3 <= pods.attempt(2)["resumed_from"] < EPOCHS * PIECES // (2 * BATCH)
    assert pods.outcome()["result"]["steps"] == EPOCHS * PIECES // (2 * BATCH)
