"""A real S3 server: packing to it, and ranks with workers reading from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.config import DataLoaderConfig, TrainConfig
from rankzero.errors import DataError
from rankzero.train.data.from_config import load_data, open_data
from tests.trainer.data.shards import numbers

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500), pytest.mark.usefixtures("s3")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched goes where the chart mounts a volume."""
    monkeypatch.setattr(contract, "CACHE_PATH", str(tmp_path))


def numbers_of(samples: list[Any]) -> list[int]:
    return [sample["n"] for sample in samples]


def test_two_ranks_with_workers_read_every_sample_once(tmp_path: Path) -> None:
    url = numbers("s3://bucket/folder", 200, shards=20, size=20_000)
    config = TrainConfig(data=url, data_loader=DataLoaderConfig(workers=2, window=2))
    seen: list[int] = []
    for rank in range(2):
        for batch in load_data(config, open_data(config), rank, 2, collate=numbers_of):
            seen += batch
    assert sorted(seen) == list(range(200))
    assert len(list((tmp_path / "data").glob("*/*.rz"))) == 20


def test_a_forked_process_fetches_what_nobody_has_fetched_ahead() -> None:
    url = numbers("s3://bucket/forked", 20, shards=4)
    dataset = open_data(TrainConfig(data=url))
    pid = os.fork()
    if pid == 0:
        found = [dataset[number]["n"] for number in range(20)]
        os._exit(0 if found == list(range(20)) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("secret", ["wrong", ""])
def test_credentials_that_are_not_right_are_named(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(DataError, match=r"cannot use s3://bucket/folder/index\.json") as found:
        open_data(TrainConfig(data="s3://bucket/folder"))
    assert "AWS_SECRET_ACCESS_KEY" in found.value.hint
