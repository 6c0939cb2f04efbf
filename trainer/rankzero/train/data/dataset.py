"""Packed samples by their number: a map-style data set for PyTorch's DataLoader."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from rankzero.errors import ConfigError
from rankzero.train.data import index as index_file
from rankzero.train.data.cache import Cache
from rankzero.train.data.fields import ARRAY_KINDS, decode
from rankzero.train.data.index import AGAIN, INDEX_FILE
from rankzero.train.data.shard_file import BadSampleError, ShardFile
from rankzero.train.data.sources import Source

OPEN = 32
"""Shards that a process has open at most."""
TRIES = 3
"""How often a shard is fetched that is gone from the cache, or damaged there, before it is open."""
DTYPES = {kind: getattr(torch, kind) for kind in ARRAY_KINDS}

Transform = Callable[[dict[str, Any]], Any]


class ShardedDataset(Dataset[Any]):
    """What ``rankzero pack`` made. Each process opens shards by itself, as it needs them.

    A sample is a dictionary with the packed fields, rows of numbers as tensors of one dimension; ``transform`` makes of
    it what the model wants: it decodes images, for example. ``index.about`` has the names of classes.
    """

    def __init__(self, url: str, *, transform: Transform | None = None, cache: Cache | None = None) -> None:
        """Reads ``index.json`` below ``url``, a folder or the URL of an object store, which needs a ``cache``.

        Raises :class:`ConfigError` where there is none or it holds no sample, and :class:`DataError` where it cannot be
        read.
        """
        self.source = Source(url)
        self.transform = transform
        self.cache = cache
        if cache is None and self.source.folder is None:
            raise ConfigError(f"{url} is no folder, and there is no cache", hint="give ShardedDataset a Cache")
        try:
            raw = self.source.read(INDEX_FILE)
        except FileNotFoundError as error:
            raise ConfigError(
                f"there is no packed data set at {url}: it has no {INDEX_FILE}",
                hint="set train.data to where `rankzero pack` has put one, and let it end",
            ) from error
        self.index = index_file.load(raw, self.source.path(INDEX_FILE))
        if not self.index.samples:
            raise ConfigError(f"the data set at {url} holds no sample", hint=AGAIN)
        self.shard_sizes = [shard.samples for shard in self.index.shards]
        self._ends = list(accumulate(self.shard_sizes))
        self._rows = {field.name: DTYPES[field.kind] for field in self.index.fields if field.kind in ARRAY_KINDS}
        self._open: OrderedDict[int, ShardFile] = OrderedDict()

    def __len__(self) -> int:
        return self.index.samples

    def __getitem__(self, number: int) -> Any:
        """Sample ``number``, from 0. Raises :class:`BadSampleError` where it is damaged."""
        shard = bisect.bisect_right(self._ends, number)
        file = self._opened(shard)
        within = number - self._ends[shard] + self.shard_sizes[shard]
        try:
            raw = file.sample(within)
        except BadSampleError:
            if self.cache is None:
                raise
            raw = self._fetched_again(shard).sample(within)  # damage of this disk is mended from the source
        sample = decode(self.index.fields, raw)
        for name, dtype in self._rows.items():
            row = sample[name]
            # A copy: tensors on read-only memory are none that PyTorch likes.
            sample[name] = torch.frombuffer(bytearray(row), dtype=dtype) if len(row) else torch.empty(0, dtype=dtype)
        return sample if self.transform is None else self.transform(sample)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}

    def _opened(self, shard: int) -> ShardFile:
        if (file := self._open.get(shard)) is not None:
            self._open.move_to_end(shard)
            return file
        for number, other in list(self._open.items()):
            if other.is_deleted() or len(self._open) >= OPEN:
                self._open.pop(number).close()
        self._open[shard] = file = self._load(shard)
        return file

    def _load(self, shard: int) -> ShardFile:
        described = self.index.shards[shard]
        if self.cache is None:
            return ShardFile(self.fetch(shard), described)
        tries = TRIES
        while True:
            path = self.fetch(shard)
            try:
                file = ShardFile(path, described)
            except BadSampleError:  # another rank has dropped it meanwhile, or its table is damaged here
                tries -= 1
                if not tries:
                    raise
                self.cache.drop(self.index.fingerprint, described)
            else:
                file.touch()
                return file

    def fetch(self, shard: int) -> Path:
        """Have a shard in the cache, if there is one, and return where it is. Raises as :meth:`Cache.fetch` does."""
        described = self.index.shards[shard]
        if self.cache is None:
            assert self.source.folder is not None
            return self.source.folder / described.name
        path = self.cache.path(self.index.fingerprint, described)
        return path if path.exists() else self.cache.fetch(self.source, self.index.fingerprint, described)

    def _fetched_again(self, shard: int) -> ShardFile:
        assert self.cache is not None
        self.cache.drop(self.index.fingerprint, self.index.shards[shard])
        self._open.pop(shard).close()
        return self._opened(shard)
