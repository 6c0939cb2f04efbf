"""The node's cache: one fetch for all, whole files only, a limit that holds, damage that is mended."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from rankzero.errors import ConfigError, DataError
from rankzero.train.data import index
from rankzero.train.data.cache import Cache
from rankzero.train.data.dataset import TRIES, ShardedDataset
from rankzero.train.data.index import INDEX_FILE, Index
from rankzero.train.data.loader import Loader
from rankzero.train.data.shard_file import BadSampleError
from rankzero.train.data.sources import Source
from tests.trainer.data.shards import numbers
from tests.waiting import until

FORK = multiprocessing.get_context("fork")


class Counting(Source):
    """Writes a line for each file that is read from it, whatever process does so."""

    def read(self, name: str) -> bytes:
        with Path(f"{self.url}.reads").open("a") as file:
            file.write(f"{name}\n")
        return super().read(name)

    @property
    def reads(self) -> list[str]:
        path = Path(f"{self.url}.reads")
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def source(tmp_path: Path) -> Counting:
    return Counting(numbers(tmp_path / "data", 60, shards=6, size=100))


def of(source: Source) -> Index:
    return index.load((Path(source.url) / INDEX_FILE).read_bytes(), "")


def files(cache: Cache) -> list[str]:
    return sorted(path.name for path in cache.folder.glob("*/*"))


def test_a_shard_is_fetched_once_and_then_found(source: Counting, tmp_path: Path) -> None:
    cache, shard = Cache(tmp_path / "cache"), of(source).shards[2]
    for _ in range(2):
        path = cache.fetch(source, "data", shard)
    assert path.read_bytes() == (Path(source.url) / shard.name).read_bytes()
    assert source.reads == [shard.name]
    assert files(cache) == [shard.name]


def fetch_all(folder: Path, url: str, start: Event) -> None:
    start.wait(60)
    source, cache = Counting(url), Cache(folder)
    for shard in of(source).shards:
        cache.fetch(source, "data", shard)


@pytest.mark.slow
def test_ranks_of_a_node_fetch_each_shard_once_between_them(source: Counting, tmp_path: Path) -> None:
    start = FORK.Event()
    ranks = [FORK.Process(target=fetch_all, args=(tmp_path / "cache", source.url, start)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    start.set()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * 4
    assert sorted(source.reads) == [shard.name for shard in of(source).shards]
    assert files(Cache(tmp_path / "cache")) == [shard.name for shard in of(source).shards]


class Dying(Source):
    def read(self, name: str) -> bytes:  # noqa: ARG002
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def die_fetching(folder: Path, url: str) -> None:
    Cache(folder, limit=10**6).fetch(Dying(url), "data", of(Source(url)).shards[0])


def test_a_fetch_that_is_killed_leaves_no_shard_and_no_lock(source: Counting, tmp_path: Path) -> None:
    killed = FORK.Process(target=die_fetching, args=(tmp_path / "cache", source.url))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    cache, shard = Cache(tmp_path / "cache", limit=10**6), of(source).shards[0]
    assert [name.endswith(".part") for name in files(cache)] == [True]
    cache.fetch(source, "data", of(source).shards[1])
    assert files(cache) == [of(source).shards[1].name]  # making room removes what the dead one has left
    assert cache.fetch(source, "data", shard).stat().st_size == shard.bytes


def test_one_that_waits_for_a_fetch_takes_what_came_of_it(source: Counting, tmp_path: Path) -> None:
    cache, shard = Cache(tmp_path / "cache"), of(source).shards[0]
    part = cache.path("data", shard).with_name(f"{shard.name}.{shard.bytes}.part")
    part.parent.mkdir(parents=True)
    with part.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=cache.fetch, args=(source, "data", shard))
        waiting.start()
        part.write_bytes((Path(source.url) / shard.name).read_bytes())
        part.rename(cache.path("data", shard))
    waiting.join(60)
    assert source.reads == []
    assert files(cache) == [shard.name]


def test_the_limit_holds_and_the_least_recently_used_goes(source: Counting, tmp_path: Path) -> None:
    shards = of(source).shards
    cache = Cache(tmp_path / "cache", limit=3 * max(shard.bytes for shard in shards))
    for number, shard in enumerate(shards[:3]):
        os.utime(cache.fetch(source, "data", shard), (number, number))
    os.utime(cache.path("data", shards[0]))  # used again
    cache.fetch(source, "another", shards[3])  # another data set in the same folder
    assert files(cache) == [shards[0].name, shards[2].name, shards[3].name]
    with pytest.raises(ConfigError, match="does not fit into the cache"):
        Cache(tmp_path / "cache", limit=10).fetch(source, "data", shards[4])


def test_a_reader_gives_back_the_space_of_what_was_dropped(source: Counting, tmp_path: Path) -> None:
    dataset = ShardedDataset(source.url, cache=Cache(tmp_path / "cache"))
    assert dataset[0]["n"] == 0
    path = dataset.cache.path(dataset.index.fingerprint, dataset.index.shards[0])  # type: ignore[union-attr]
    path.unlink()
    assert dataset[1]["n"] == 1  # what it has open it can read on
    assert dataset[59]["n"] == 59
    opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [name for name in opened if str(tmp_path) in name and name.endswith("(deleted)")]


def test_damage_of_the_cache_is_mended_from_the_source(source: Counting, tmp_path: Path) -> None:
    dataset = ShardedDataset(source.url, cache=Cache(tmp_path / "cache"))
    path = dataset.fetch(1)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert [dataset[number]["n"] for number in range(60)] == list(range(60))
    assert path.read_bytes() == (Path(source.url) / path.name).read_bytes()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(bytes(10))], ids=["dropped", "damaged"])
def test_a_shard_that_another_rank_drops_or_the_disk_damages_before_it_is_open_is_fetched_again(
    source: Counting, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    class Meddled(ShardedDataset):
        done = 0

        def fetch(self, shard: int) -> Path:
            path = super().fetch(shard)
            if self.done < TRIES - 1:
                self.done += 1
                harm(path)
            return path

    dataset = Meddled(source.url, cache=Cache(tmp_path / "cache"))
    assert dataset[0]["n"] == 0
    assert dataset.done == TRIES - 1


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: path.unlink(), "offset 0: there is no such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, .* were packed"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), "its SHA-256 is not that of index.json"),
    ],
)
def test_a_bad_shard_of_the_source_is_named_and_not_kept(
    source: Counting, tmp_path: Path, harm: Any, says: str
) -> None:
    path = Path(source.url) / "shard-000001.rz"
    harm(path)
    dataset = ShardedDataset(source.url, cache=Cache(tmp_path / "cache"))
    with pytest.raises(BadSampleError, match=says) as found:
        [dataset[number] for number in range(60)]
    assert str(path) in str(found.value)
    assert files(Cache(tmp_path / "cache")) == ["shard-000000.rz"]


def numbers_of(samples: list[Any]) -> list[int]:
    return [sample["n"] for sample in samples]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_through_the_cache_and_fetches_ahead(source: Counting, tmp_path: Path, workers: int) -> None:
    dataset = ShardedDataset(source.url, cache=Cache(tmp_path / "cache"))
    dataset.source = source
    data = Loader(dataset, 0, 1, batch_size=5, window=1, workers=workers, collate=numbers_of)
    batches = iter(data)
    seen = next(batches)
    # Ten samples a shard: with the first batch the second shard is wanted, which no batch needs yet.
    until(lambda: len(files(Cache(tmp_path / "cache"))) >= 2, timeout=60, what="a second shard")
    assert sorted(seen + [n for batch in batches for n in batch]) == list(range(60))
    assert sorted(source.reads) == [shard.name for shard in of(source).shards]


def test_a_cache_too_small_for_what_is_read_at_once_is_refused(source: Counting, tmp_path: Path) -> None:
    dataset = ShardedDataset(source.url, cache=Cache(tmp_path / "cache", limit=3000))
    with pytest.raises(ConfigError, match=r"may hold 3000 bytes; 1 ranks of this node that mix 2 shards"):
        Loader(dataset, 0, 1, batch_size=5, window=2)


def test_a_disk_that_is_full_is_named(source: Counting, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # as near to a full disk as one comes without one
    try:
        with pytest.raises(DataError, match="cannot write the cache"):
            cache.fetch(Source(source.url), "data", of(source).shards[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert files(cache) == []
