"""The mesh of all ranks, and who reads which data."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rankzero.config import TrainConfig
from rankzero.parallel_config import DIMENSIONS
from rankzero.train.distributed import Ranks, first_step_timeout, keep_for_ever, set_timeout


def build(config: TrainConfig, ranks: Ranks) -> DeviceMesh:
    """The mesh for ``train.parallel`` with the dimensions pipeline, replicate, shard, tensor. Every rank calls it.

    Raises :class:`ConfigError` where the ranks do not make it.
    """
    sizes = config.parallel.sizes(ranks.world_size, ranks.per_node)
    shape = tuple(getattr(sizes, name) for name in DIMENSIONS)
    mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=DIMENSIONS)
    for group in mesh.get_all_groups():
        keep_for_ever(group)
    set_timeout(first_step_timeout(config), mesh.get_all_groups())  # which do not take that of the world
    return mesh


def size(mesh: DeviceMesh, *dimensions: str) -> int:
    """Ranks along the dimensions, all of them together. To slice the mesh for it takes a millisecond."""
    return math.prod(mesh.size(DIMENSIONS.index(name)) for name in dimensions)


def data_ranks(mesh: DeviceMesh) -> tuple[int, int]:
    """This rank's index among those that read different data, and their number.

    Ranks that differ only in their pipeline stage or tensor part have the same index: they work on the same samples.
    """
    index = mesh.get_local_rank("replicate") * size(mesh, "shard") + mesh.get_local_rank("shard")
    return index, size(mesh, "replicate", "shard")


def groups(mesh: DeviceMesh) -> Iterator[dist.ProcessGroup]:
    """The world's group and those of the mesh that this rank belongs to."""
    world = dist.group.WORLD
    assert world is not None
    yield world
    yield from mesh.get_all_groups()
