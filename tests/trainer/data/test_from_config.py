"""From `train.data` and `train.dataLoader` to a loader; what the chart says of data sets in object storage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.config import DataLoaderConfig, TrainConfig, parse
from rankzero.errors import ConfigError, DataError
from rankzero.train.data.from_config import load_data, open_data
from tests.trainer.data.shards import numbers


def numbers_of(samples: list[Any]) -> list[int]:
    return [sample["n"] for sample in samples]


def test_a_folder_is_read_with_the_settings(tmp_path: Path) -> None:
    settings = {"data": numbers(tmp_path / "data", 50, shards=10), "batchSize": 7, "dataLoader": {"workers": 0}}
    config = parse(TrainConfig, settings, "train")
    data = load_data(config, open_data(config), 0, 2, collate=numbers_of)
    assert [len(batch) for batch in data] == [7, 7, 7, 4]


def test_a_batch_is_what_a_rank_takes_in_a_step(tmp_path: Path) -> None:
    url = numbers(tmp_path / "data", 50, shards=10)
    config = TrainConfig(data=url, batch_size=5, accumulate=2, data_loader=DataLoaderConfig(workers=0))
    data = load_data(config, open_data(config), 0, 2, collate=numbers_of)
    assert [len(batch) for batch in data] == [10, 10, 5]


def test_a_pipeline_that_would_fail_at_the_end_of_an_epoch_is_refused_at_its_start(tmp_path: Path) -> None:
    settings = {
        "data": numbers(tmp_path / "data", 50, shards=10),
        "parallel": {"pipeline": 2},
        "accumulate": 2,
        "batchSize": 3,
        "dataLoader": {"workers": 0},
    }
    config = parse(TrainConfig, settings, "train")
    with pytest.raises(ConfigError, match=r"dropLast is false.*\n.*set train\.dataLoader\.dropLast to true"):
        load_data(config, open_data(config), 0, 2)
    config = replace(config, data_loader=replace(config.data_loader, drop_last=True))
    assert [len(batch) for batch in load_data(config, open_data(config), 0, 2, collate=numbers_of)] == [6] * 4


def test_any_url_of_fsspec_is_read_through_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = numbers("memory://bucket/folder", 50, shards=10)
    monkeypatch.setattr(contract, "CACHE_PATH", str(tmp_path))
    dataset = open_data(TrainConfig(data=url))
    assert [dataset[number]["n"] for number in range(50)] == list(range(50))
    assert len(list((tmp_path / "data").glob("*/*.rz"))) == 10


@pytest.mark.parametrize(
    ("size", "limit"), [({"size": 10 * 2**20}, 0.9 * 10 * 2**20), ({"size": 3 * 10**9}, 0.9 * 3e9)]
)
def test_the_mount_path_of_a_data_set_in_object_storage_stands_for_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: dict[str, int], limit: float
) -> None:
    numbers("memory://bucket/all/train", 50, shards=10)
    mount = str(tmp_path / "mount")
    known = {"digits": {"url": "memory://bucket/all/", "cache": mount, **size}}
    monkeypatch.setenv(contract.ENV_DATASETS, json.dumps(known))
    dataset = open_data(TrainConfig(data=f"{mount}/train"))
    assert dataset.source.url == "memory://bucket/all/train"
    assert dataset.cache is not None
    assert (str(dataset.cache.folder), dataset.cache.limit) == (mount, int(limit))
    chosen = open_data(TrainConfig(data=f"{mount}/train", data_loader=DataLoaderConfig(cache_size=0.5)))
    assert chosen.cache is not None
    assert chosen.cache.limit == 2**29


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "train.data is empty"),
        ("memory://bucket/absent", "no packed data set at memory://bucket/absent"),
        ("nothing://bucket/folder", "nothing://bucket/folder: Protocol not known"),
    ],
)
def test_data_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, says: str) -> None:
    monkeypatch.setattr(contract, "CACHE_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=says):
        open_data(TrainConfig(data=data))


def test_a_bucket_that_cannot_be_reached_is_named_with_what_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "CACHE_PATH", str(tmp_path))
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "here",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DataError, match=r"cannot use s3://bucket/folder/index\.json") as found:
        open_data(TrainConfig(data="s3://bucket/folder"))
    assert "objectStorage.endpoint" in found.value.hint
