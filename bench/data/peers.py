"""One class a reader: how it packs, how a rank reads, and what it keeps to go on later.

Peers are not installed with the project, so they are imported by name.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

Sample = tuple[int, bytes]
"""A number and an image file's bytes."""


@dataclass(frozen=True)
class Task:
    """What one rank is to read."""

    folder: Path
    """Where the packed data lies."""
    rank: int = 0
    world_size: int = 1
    batch_size: int = 32
    workers: int = 0
    cache: Path | None = None
    """A local folder to read through; None reads ``folder`` itself."""


Batch = tuple[list[int], list[bytes]]
"""The numbers and the images of some samples, as each reader's collate function makes it."""


class Stream(Protocol):
    """A rank's batches of one epoch; with a state where the reader has one."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state(self) -> Any: ...

    def resume(self, state: Any) -> None: ...


def columns(batch: list[dict[str, Any]]) -> Batch:
    """Collate samples of two fields."""
    return [one["id"] for one in batch], [one["image"] for one in batch]


class Plain:
    """A DataLoader, with a state of its own or none."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loader)

    def state(self) -> Any:
        """None where the reader cannot say where it is."""
        return self._loader.state_dict() if hasattr(self._loader, "state_dict") else None

    def resume(self, state: Any) -> None:
        """Go on from there."""
        if state is not None:
            self._loader.load_state_dict(state)


class Rankzero:
    """rankzero.train.data."""

    def write(self, samples: Iterable[Sample], folder: Path, shards: int) -> None:
        """Pack as `rankzero pack` does."""
        from rankzero.train.data.fields import Field
        from rankzero.train.data.pack.pack import pack
        from rankzero.train.data.sources import Source

        class Items:
            def __init__(self) -> None:
                self.fields: tuple[Field, ...] = (Field("id", "int"), Field("image", "bytes"))
                self.about: dict[str, Any] = {}
                self.fingerprint = "bench"
                self.listed = list(samples)

            def __len__(self) -> int:
                return len(self.listed)

            def read(self, number: int) -> dict[str, Any]:
                return {"id": self.listed[number][0], "image": self.listed[number][1]}

        pack(Items(), Source(str(folder)), shards=shards)

    def read(self, task: Task) -> Stream:
        """A Loader."""
        from rankzero.train.data.cache import Cache
        from rankzero.train.data.dataset import ShardedDataset
        from rankzero.train.data.loader import Loader

        dataset = ShardedDataset(str(task.folder), cache=Cache(task.cache) if task.cache else None)
        loader = Loader(
            dataset,
            task.rank,
            task.world_size,
            batch_size=task.batch_size,
            workers=task.workers,
            collate=columns,
        )
        return Plain(loader)


class Mosaic:
    """mosaicml-streaming: MDS shards, StreamingDataset, StreamingDataLoader."""

    def write(self, samples: Iterable[Sample], folder: Path, shards: int) -> None:
        """Pack with its MDSWriter."""
        listed = list(samples)
        size = sum(len(image) + 32 for _, image in listed) // shards
        columns = {"id": "int", "image": "bytes"}
        streaming = import_module("streaming")
        with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=size) as writer:
            for number, image in listed:
                writer.write({"id": number, "image": image})

    def read(self, task: Task) -> Stream:
        """Its loader over its dataset, for one rank."""
        streaming = import_module("streaming")
        place = (
            {"local": str(task.folder)}
            if task.cache is None
            else {"remote": str(task.folder), "local": str(task.cache)}
        )
        dataset = streaming.StreamingDataset(**place, shuffle=True, shuffle_seed=0, batch_size=task.batch_size)
        loader = streaming.StreamingDataLoader(
            dataset, batch_size=task.batch_size, num_workers=task.workers, collate_fn=columns
        )
        return Plain(loader)


def same(sample: Any) -> Any:
    """What litdata calls with every input."""
    return sample


def copied(batch: list[dict[str, Any]]) -> Batch:
    """Collate samples whose images are views, which no worker could send."""
    return [one["id"] for one in batch], [bytes(one["image"]) for one in batch]


class Litdata:
    """litdata: chunks, StreamingDataset, StreamingDataLoader."""

    def write(self, samples: Iterable[Sample], folder: Path, shards: int) -> None:
        """Pack with its optimize()."""
        listed: list[Any] = [{"id": number, "image": image} for number, image in samples]
        size = sum(len(one["image"]) + 32 for one in listed) // shards
        import_module("litdata").optimize(
            fn=same, inputs=listed, output_dir=str(folder), chunk_bytes=size, num_workers=1, verbose=False
        )

    def read(self, task: Task) -> Stream:
        """Its loader over its dataset."""
        litdata = import_module("litdata")
        place: dict[str, Any] = {"input_dir": str(task.folder)}
        if task.cache is not None:
            place["input_dir"] = f"local:{task.folder}"
            place["cache_dir"] = str(task.cache)
        dataset = litdata.StreamingDataset(**place, shuffle=True, seed=0, drop_last=False)
        loader = litdata.StreamingDataLoader(
            dataset, batch_size=task.batch_size, num_workers=task.workers, collate_fn=copied
        )
        return Plain(loader)


def keyed(batch: list[dict[str, Any]]) -> Batch:
    """Collate samples that have their number as a name."""
    return [int(one["__key__"]) for one in batch], [one["jpg"] for one in batch]


class Webdataset:
    """webdataset: tar files, read in a row and mixed in memory; no state to resume from."""

    def write(self, samples: Iterable[Sample], folder: Path, shards: int) -> None:
        """Pack with its ShardWriter."""
        listed = list(samples)
        folder.mkdir(parents=True)
        wds = import_module("webdataset")
        with wds.ShardWriter(f"{folder}/%06d.tar", maxcount=-(-len(listed) // shards), verbose=0) as writer:
            for number, image in listed:
                writer.write({"__key__": f"{number:08d}", "jpg": image})

    def read(self, task: Task) -> Stream:
        """Shards are dealt to ranks and workers."""
        wds = import_module("webdataset")
        files: Any = sorted(map(str, task.folder.glob("*.tar")))

        def mine(urls: Any, *_: Any, **__: Any) -> Any:
            return list(urls)[task.rank :: task.world_size]

        dataset = wds.WebDataset(
            files,
            shardshuffle=len(files),
            seed=0,
            nodesplitter=mine,
            cache_dir=str(task.cache) if task.cache else None,
            empty_check=False,
        ).shuffle(4 * task.batch_size)
        loader = wds.WebLoader(dataset, batch_size=task.batch_size, num_workers=task.workers, collate_fn=keyed)
        return Plain(loader)


def paired(batch: list[Sample]) -> Batch:
    """Collate pairs."""
    return [number for number, _ in batch], [image for _, image in batch]


class Files:
    """A map-style dataset of one file a sample."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Sample:
        return int(self.paths[number].stem), self.paths[number].read_bytes()


class Torchdata:
    """torchdata's StatefulDataLoader over one file a sample; without workers also PyTorch's own DataLoader would do."""

    def write(self, samples: Iterable[Sample], folder: Path, shards: int) -> None:  # noqa: ARG002
        """One file a sample."""
        folder.mkdir(parents=True)
        for number, image in samples:
            (folder / f"{number:08d}.jpg").write_bytes(image)

    def read(self, task: Task) -> Stream:
        """Its loader with its sampler."""
        loaders = import_module("torchdata.stateful_dataloader")
        samplers = import_module("torchdata.stateful_dataloader.sampler")
        dataset = Files(task.folder)
        sampler = samplers.StatefulDistributedSampler(
            dataset, num_replicas=task.world_size, rank=task.rank, shuffle=True, seed=0
        )
        loader = loaders.StatefulDataLoader(
            dataset, task.batch_size, sampler=sampler, num_workers=task.workers, collate_fn=paired
        )
        return Plain(loader)


PEERS: dict[str, Any] = {
    "rankzero": Rankzero,
    "mosaicml-streaming": Mosaic,
    "litdata": Litdata,
    "webdataset": Webdataset,
    "torchdata": Torchdata,
}


def fresh(folder: Path) -> Path:
    """``folder``, which does not exist."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder of its own."""
    return tempfile.TemporaryDirectory(prefix="rankzero-bench-data-")
