"""What all ranks of the run tell each other about checkpoints."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rankzero import contract
from rankzero.errors import CheckpointError

T = TypeVar("T")

TIMEOUT = 3600.0
"""Seconds that a rank waits for one that still writes, where no launcher says otherwise."""


class Peers:
    """All ranks, over a gloo group of their own: its messages need no GPU and mix with nobody else's.

    Every rank makes it, and calls each method in the same order, from one thread. A process without a process group
    is a world of one.
    """

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self._group: dist.ProcessGroup | None = None
        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
        if self.size > 1:
            timeout = timedelta(seconds=float(os.environ.get(contract.ENV_COLLECTIVE_TIMEOUT, TIMEOUT)))
            self._group = dist.new_group(backend="gloo", timeout=timeout)
            # Freed by whatever thread comes last, a gloo group can keep the process from ending (see distributed.py).
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    @property
    def is_first(self) -> bool:
        """True on rank 0 only."""
        return self.rank == 0

    @contextmanager
    def all_or_none(self, problem: str) -> Iterator[None]:
        """The body, in which ranks talk to nobody. Where one fails in it, all others raise :class:`CheckpointError`.

        Otherwise they would wait for that one in their next exchange.
        """
        try:
            yield
        except Exception as error:
            if self.any(True):
                self.share(f"{type(error).__name__}: {error}")
            raise
        if self.any(False):
            rank, said = next((rank, said) for rank, said in enumerate(self.share("")) if said)
            raise CheckpointError(f"{problem} by rank {rank}: {said}")

    def broadcast(self, value: T, source: int = 0) -> T:
        """The value of one rank, on every rank."""
        if self._group is None:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=source, group=self._group)
        return values[0]

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank, on rank 0; an empty list on the others."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.gather_object(value, values if self.is_first else None, dst=0, group=self._group)
        return values if self.is_first else []

    def scatter(self, values: list[T]) -> T:
        """The one of rank 0's values that is for this rank; what others hand over does not count."""
        if self._group is None:
            return values[0]
        found: list[Any] = [None]
        dist.scatter_object_list(found, values if self.is_first else None, src=0, group=self._group)
        mine: T = found[0]
        return mine

    def share(self, value: T) -> list[T]:
        """Every rank's value, by rank, on every rank."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def first_said(self, value: T) -> T:
        """What the first rank that has something to say says, on every rank; the empty value where none has."""
        return next(filter(None, self.share(value)), value)

    def any(self, flag: bool) -> bool:
        """Whether it is true on any rank: one whole number each."""
        if self._group is None:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._group)
        return bool(found)
