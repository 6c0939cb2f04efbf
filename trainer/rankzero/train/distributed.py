"""Start and end of a rank: process group, device, seeds."""

from __future__ import annotations

import ctypes
import os
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

# Documented as torch.distributed.*, but left out of its stubs.
from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]

from rankzero import contract, heartbeat
from rankzero.config import TrainConfig
from rankzero.errors import ConfigError
from rankzero.heartbeat import Phase


@dataclass(frozen=True)
class Ranks:
    """This process's place in the world."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    store: Store
    """The key-value store that all ranks share."""
    per_node: int = 1
    """Ranks on each node."""

    @property
    def is_first(self) -> bool:
        """True on global rank 0 only: the one that logs and writes shared files."""
        return self.rank == 0


@contextmanager
def process_group(config: TrainConfig) -> Iterator[Ranks]:
    """Join the default process group and leave it at the end. Every rank calls it.

    Reads the environment that ``rankzero launch`` or torchrun sets; without one it is a world of one process.
    Seeds Python, torch and numpy with ``config.seed`` + rank. Raises :class:`ConfigError` for a backend that this
    build or machine lacks.
    """
    heartbeat.current()  # the launcher sees this rank from now on
    _prepare(config)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = choose_backend(config.backend, device)
    timeout = timedelta(seconds=first_step_timeout(config))
    if "MASTER_ADDR" in os.environ:
        store, _, _ = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
    else:
        store = HashStore()
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        device_id=device if backend == "nccl" else None,  # so that groups are connected now, not in the first step
    )
    keep_for_ever(dist.group.WORLD)
    seed(config.seed + rank)
    failed = False
    try:
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        yield Ranks(rank, local_rank, world_size, device, PrefixStore("rankzero", store), per_node)
    except Exception:
        failed = True  # its message must not wait for peers, and the process is about to end
        raise
    finally:
        if not failed:
            heartbeat.current().enter(Phase.ENDING)
            dist.destroy_process_group()


def _prepare(config: TrainConfig) -> None:
    """What must be said before CUDA is touched; what the user's environment says already stays."""
    if config.expandable_segments and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may not be deterministic
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def first_step_timeout(config: TrainConfig) -> float:
    """Seconds that one collective may wait until the first step is done.

    A launcher gives the limit for the whole attempt: it is longer than the watchdog's, which speaks first and knows
    which phases may take long.
    """
    return float(os.environ.get(contract.ENV_COLLECTIVE_TIMEOUT, config.timeout.first_step))


def step_timeout(config: TrainConfig) -> float:
    """Seconds that one collective may wait from then on."""
    return float(os.environ.get(contract.ENV_COLLECTIVE_TIMEOUT, config.timeout.step))


def set_timeout(seconds: float, groups: Iterable[dist.ProcessGroup]) -> None:
    """Collectives that begin from now on may wait so long. Every rank of a group calls it; nobody is waited for."""
    for group in groups:
        if dist.get_backend(group) == "mpi":  # which has none
            continue
        group.set_timeout(timedelta(seconds=seconds))


def keep_for_ever(group: dist.ProcessGroup | None) -> None:
    """Leave a gloo group to the end of the process, which its destructor would keep from coming, now and then.

    Whoever frees the group, the DDP model at the latest, holds the interpreter's lock and waits for that of the group's
    thread; the thread holds its own and, freeing the last collective's tensor, waits for the interpreter's (seen with
    torch 2.13).
    """
    if dist.get_backend(group) == "gloo":
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def choose_backend(wanted: str, device: torch.device) -> str:
    """The backend for ``train.backend``. Raises :class:`ConfigError` where it cannot work here."""
    if wanted == "auto":
        return "nccl" if device.type == "cuda" else "gloo"
    available = {
        "nccl": dist.is_nccl_available() and device.type == "cuda",
        "gloo": dist.is_gloo_available(),
        "mpi": dist.is_mpi_available(),
    }
    if not available[wanted]:
        usable = [name for name, there in available.items() if there]
        raise ConfigError(
            f"train.backend is {wanted}, which this image and machine do not offer",
            hint=f"usable here: auto, {', '.join(usable)} (nccl needs a GPU, mpi a torch built with it)",
        )
    return wanted


def seed(value: int) -> None:
    """Seed Python's and torch's generators, CUDA included, and numpy's where the script has imported it before."""
    random.seed(value)
    torch.manual_seed(value)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(value % 2**32)
