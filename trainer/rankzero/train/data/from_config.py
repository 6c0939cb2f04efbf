"""``train.data`` and ``train.dataLoader`` become a data set and its loader."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch.utils.data import default_collate

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.train.data.batches import Collate
from rankzero.train.data.cache import Cache, room
from rankzero.train.data.dataset import ShardedDataset, Transform
from rankzero.train.data.loader import Loader

SHARE = 0.9
"""Of the space that the cache's volume has, or may take before the pod is evicted."""


def open_data(config: TrainConfig, transform: Transform | None = None) -> ShardedDataset:
    """The packed data set at ``train.data``; every rank calls it.

    That is a folder, a URL, or the ``mountPath`` of one of the chart's ``datasets``, or a path below it: where that one
    is in object storage, its URL is read through the cache that is mounted there. Raises what
    :class:`ShardedDataset` does.
    """
    if not config.data:
        raise ConfigError("train.data is empty", hint="set it to a folder or URL where `rankzero pack` has put shards")
    url, folder, size = _mounted(config.data)
    settings = config.data_loader
    folder = settings.cache or folder
    if not folder and "://" in url and not url.startswith("file://"):
        folder = f"{contract.CACHE_PATH}/data"
    if not folder:
        return ShardedDataset(url, transform=transform)
    limit = int(settings.cache_size * 2**30) or int(SHARE * (size or room(Path(folder))))
    return ShardedDataset(url, transform=transform, cache=Cache(Path(folder), limit))


def load_data(
    config: TrainConfig, dataset: Any, rank: int, ranks: int, *, collate: Collate = default_collate
) -> Loader:
    """The loader of ``dataset``, packed or any map-style one, with the settings of ``train``.

    A batch is what a rank takes in a step, ``batch_size * accumulate`` samples; :meth:`Step.run` cuts it.
    Every rank calls it; ``rank`` is its place among ``ranks`` that read different data. Raises what :class:`Loader`
    does, and :class:`ConfigError` where a pipeline would get a smaller batch at the end of an epoch.
    """
    settings = config.data_loader
    if config.parallel.pipeline not in {0, 1} and not settings.drop_last:
        raise ConfigError(
            "train.dataLoader.dropLast is false, so an epoch may end with a smaller step, which a pipeline cannot make "
            f"(train.parallel.pipeline is {config.parallel.pipeline})",
            hint="set train.dataLoader.dropLast to true",
        )
    return Loader(
        dataset,
        rank,
        ranks,
        batch_size=config.batch_size * config.accumulate,
        seed=config.seed,
        shuffle=settings.shuffle,
        window=settings.window,
        drop_last=settings.drop_last,
        workers=settings.workers,
        prefetch=settings.prefetch,
        max_bad=settings.max_bad_samples,
        collate=collate,
    )


def _mounted(data: str) -> tuple[str, str, int]:
    """URL, cache folder and its size in bytes, where the chart knows them; else ``data`` itself, "" and 0."""
    known: dict[str, dict[str, Any]] = json.loads(os.environ.get(contract.ENV_DATASETS, "{}"))
    for entry in known.values():
        mount = entry["cache"].rstrip("/")
        if data.rstrip("/") == mount or data.startswith(f"{mount}/"):
            return entry["url"].rstrip("/") + data.rstrip("/")[len(mount) :], mount, entry.get("size", 0)
    return data, "", 0
