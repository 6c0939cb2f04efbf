"""How a run is spread over its ranks: ``train.parallel`` and the arithmetic of its mesh. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rankzero.errors import ConfigError
from rankzero.fields import bounded

REST = -1
"""As a size: as many as the others leave of the world."""
BY_STRATEGY = 0
"""As a size: what the strategy says."""
LARGEST = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """The mesh, outermost dimension first: ranks that are next to each other belong to the same tensor group."""

    pipeline: int
    replicate: int
    shard: int
    tensor: int

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.pipeline * self.replicate * self.shard * self.tensor

    @property
    def data(self) -> int:
        """Ranks that read different data; the others of the world share what one of these reads."""
        return self.replicate * self.shard


DIMENSIONS = ("pipeline", "replicate", "shard", "tensor")


def _size(doc: str) -> int:
    more = "0 leaves it to the strategy, -1 is the rest of the ranks."
    size: int = bounded(BY_STRATEGY, minimum=REST, maximum=LARGEST, doc=f"{doc}; {more}")
    return size


@dataclass(frozen=True)
class ParallelConfig:
    """The form of parallelism; ``pipeline * replicate * shard * tensor`` is the number of ranks."""

    strategy: Literal["auto", "ddp", "fsdp", "hsdp", "data-parallel"] = bounded(
        "auto",
        doc="What sizes that are 0 become. auto and ddp: every rank holds the model (replicate -1). fsdp: sharded over "
        "all ranks (shard -1). hsdp: sharded within a node, replicated over nodes. data-parallel: one process for "
        "all GPUs of one pod, by torch's DataParallel; ddp is faster.",
    )
    replicate: int = _size("Groups of ranks that hold the same parameters and read different data")
    shard: int = _size("Ranks over which parameters, gradients and optimizer are sharded, each with data of its own")
    tensor: int = _size("Ranks over which single layers are split; keep them within a node")
    pipeline: int = _size("Stages into which the layers are cut")
    schedule: Literal["gpipe", "1f1b"] = bounded(
        "1f1b",
        doc="Order of the pipeline's micro-batches, of which train.accumulate says how many; 1f1b needs less memory.",
    )
    find_unused_parameters: bool = bounded(
        False,
        doc="With ddp: some parameters have no part in a step, as in a model that leaves out branches. It costs a walk "
        "through each step's graph; without it such a step ends with torch's error.",
    )

    def sizes(self, world_size: int, ranks_per_node: int) -> Sizes:
        """The mesh for ``world_size`` ranks, ``ranks_per_node`` on each node.

        Raises :class:`ConfigError` with the key, its value and what is allowed where there is none.
        """
        found = self._by_strategy(world_size, ranks_per_node)
        rest = [name for name in DIMENSIONS if found[name] == REST]
        if len(rest) > 1:
            raise ConfigError(
                f"{_named(dict.fromkeys(rest, REST))}: only one of them can be the rest",
                hint="allowed: -1 for one of them, and numbers for the others",
            )
        fixed = math.prod(size for size in found.values() if size != REST)
        if rest and world_size % fixed == 0:
            found[rest[0]] = world_size // fixed
        elif fixed != world_size:
            given = {name: size for name, size in found.items() if size > 1} or found
            raise ConfigError(
                f"{_named(given)}: {fixed} ranks do not {'divide' if rest else 'make'} the world of {world_size}",
                hint=f"the product of {', '.join(DIMENSIONS)} must be {world_size}; one of them may be -1, and each of "
                f"the others one of {', '.join(map(str, _divisors(world_size)))}",
            )
        return Sizes(**found)

    def _by_strategy(self, world_size: int, ranks_per_node: int) -> dict[str, int]:
        """The sizes with the strategy's choice where they are 0."""
        if self.strategy == "data-parallel" and world_size != 1:
            raise ConfigError(
                f"train.parallel.strategy is data-parallel, which is one process, and there are {world_size} ranks",
                hint="allowed for several ranks: auto, ddp, fsdp, hsdp; data-parallel needs nodes: 1, procsPerNode: 1",
            )
        for name in {"ddp": ["shard"], "fsdp": ["replicate"]}.get(self.strategy, []):
            if getattr(self, name) not in {BY_STRATEGY, 1}:
                raise ConfigError(
                    f"train.parallel.{name} is {getattr(self, name)} and train.parallel.strategy {self.strategy}",
                    hint=f"allowed with {self.strategy}: 0, 1; hsdp has both replicate and shard",
                )
        tensor, pipeline = self.tensor or 1, self.pipeline or 1
        given = [tensor, pipeline, self.shard, self.replicate]
        rest = 1 if REST in given else REST
        replicate, shard = self.replicate, self.shard
        if self.strategy == "hsdp":
            shard = shard or (rest if replicate > 0 else max(ranks_per_node // max(tensor, 1), 1))
        else:
            shard = shard or (rest if self.strategy == "fsdp" else 1)
        replicate = replicate or (1 if self.strategy == "fsdp" or shard == REST else rest)
        return {"pipeline": pipeline, "replicate": replicate, "shard": shard, "tensor": tensor}


def _named(sizes: dict[str, int]) -> str:
    return "train.parallel: " + ", ".join(f"{name} is {size}" for name, size in sizes.items())


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
