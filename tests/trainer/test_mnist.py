"""The example under the real launcher: real digits, real gloo ranks, a killed pod, the same bits."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from rankzero import contract
from rankzero.errors import DataError
from rankzero.train.checkpoint import Checkpoints, load
from rankzero.train.checkpoint.layout import step_of
from tests.launch.pods import REPO, PodGroup
from tests.waiting import until

EXAMPLE = REPO / "trainer/examples/mnist.py"
TRAIN = {
    "backend": "gloo", "batchSize": 64, "learningRate": 0.01, "logEverySteps": 10, "checkpoint": {"everySteps": 10},
}  # fmt: skip


def group(folder: Path, nodes: int = 2, **train: Any) -> PodGroup:
    """Pods that run the example with the settings in ``TRAIN`` and ``train``."""
    folder.mkdir()
    pods = PodGroup(folder, nodes=nodes, procs=1, args=[])
    for pod in pods.pods:
        launch = {**pods.launch, "script": str(EXAMPLE), "args": [], "statusPort": pod.status_port}
        pod.config.write_text(yaml.safe_dump({"launch": launch, "train": {**TRAIN, **train}}))
    return pods


def mnist() -> ModuleType:
    """The example as a module; scripts are no package."""
    spec = importlib.util.spec_from_file_location("mnist_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def final_state(pods: PodGroup) -> tuple[int, dict[str, Tensor]]:
    """The step of the last checkpoint, and all tensors in it by name."""
    newest = next(iter(Checkpoints(pods.state_dir)))
    metadata = FileSystemReader(newest).read_metadata()
    tensors = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    load.read(tensors, FileSystemReader(newest), metadata)
    return step_of(newest), tensors


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_lost_a_pod_ends_with_the_same_bits_as_one_that_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure A23: exact resume, data position and random states included."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    undisturbed, disturbed = group(tmp_path / "a"), group(tmp_path / "b")
    try:
        undisturbed.start()
        assert [pod.wait(120) for pod in undisturbed.pods] == [0, 0]
        disturbed.start()
        checkpoints = Checkpoints(disturbed.state_dir)
        until(lambda: list(checkpoints), timeout=120, what="a checkpoint")
        disturbed.pods[1].delete()
        disturbed.pods[1].start()
        assert [pod.wait(120) for pod in disturbed.pods] == [0, 0]
    finally:
        for pods in (undisturbed, disturbed):
            pods.stop()
            for pod in pods.pods:
                print(pod.output)
    resumed = disturbed.attempt(2)
    assert resumed["resumed_from"] >= 10
    assert disturbed.outcome()["result"] == undisturbed.outcome()["result"]
    (step, ours), (their_step, theirs) = final_state(disturbed), final_state(undisturbed)
    assert step == their_step == 62
    assert ours.keys() == theirs.keys() >= {"model.0.weight", "optimizer.state.0.weight.momentum_buffer"}
    for name, weight in theirs.items():
        assert torch.equal(ours[name], weight), name


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"data": "/no/such"}, "ConfigError: cannot read /no/such/mnist-10k-images-idx3-ubyte.gz: No such file"),
        (
            {"batchSize": 8001},
            "ConfigError: train.batchSize is 8001, more than a rank's share of the data (8000 of 8000 samples)",
        ),
    ],
)
def test_a_wrong_setting_ends_the_run_in_its_first_attempt_with_a_sentence(
    tmp_path: Path, setting: dict[str, Any], sentence: str
) -> None:
    pods = group(tmp_path / "run", nodes=1, **setting)
    [pod] = pods.pods
    try:
        assert pod.start().wait() == contract.EXIT_USAGE
    finally:
        pods.stop()
        print(pod.output)
    assert pods.outcome()["state"] == "failed"
    assert sentence in pods.outcome()["reason"]
    assert not pods.attempt(2)
    assert "  fix: " in pod.output
    assert "Traceback" not in pod.output


def damaged(content: bytes) -> list[bytes]:
    """Files that are no whole IDX file of bytes, compressed as the example's are."""
    whole = gzip.compress(content)
    bit = bytearray(whole)
    bit[len(bit) // 2] ^= 1
    shapes = [b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x05", b"\0\0\x08\x01\0\0\0\0", b"\x89PNG", content[:-1]]
    return [b"", whole[: len(whole) // 2], bytes(bit), content, *map(gzip.compress, shapes)]


@pytest.mark.parametrize("number", range(10))
def test_a_damaged_data_file_is_an_error_that_names_it(tmp_path: Path, number: int) -> None:
    example = mnist()
    for file in example.DEFAULT_DATA.glob("*.gz"):
        shutil.copy(file, tmp_path)
    labels = tmp_path / "mnist-10k-labels-idx1-ubyte.gz"
    labels.write_bytes(damaged(gzip.decompress(labels.read_bytes()))[number])
    with pytest.raises(DataError, match="mnist-10k-labels") as caught:
        example.load_digits(tmp_path)
    assert caught.value.exit_code not in {0, contract.EXIT_USAGE}
    assert caught.value.hint
