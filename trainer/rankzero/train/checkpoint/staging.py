"""Copies of what is to be written, taken while the next step's forward and backward pass run.

What only an optimizer changes is copied in the background, and the optimizer waits for it before it changes anything:
on a GPU its stream does, without holding up the loop. Everything else (buffers, frozen or averaged weights) is copied
before the loop goes on. The memory is allocated once: as much as this rank writes.
"""

from __future__ import annotations

import copy
import ctypes
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rankzero import heartbeat
from rankzero.heartbeat import Phase
from rankzero.train.sharding import local


class Staging:
    """The copies of one rank. One save at a time."""

    def __init__(self) -> None:
        self.copies: dict[str, Any] = {}
        self.waited = 0.0
        """Seconds that :meth:`wait` has taken since the last :meth:`begin`."""
        self._later: dict[str, Tensor] = {}
        self._done = threading.Event()
        self._done.set()
        self._stream: torch.cuda.Stream | None = None
        self._copied: torch.cuda.Event | None = None

    def begin(self, entries: Mapping[str, Any], names: Iterable[str], stable: frozenset[str]) -> None:
        """Take ``names`` of ``entries``; those that are ``stable`` are copied by :meth:`finish`. The loop calls it."""
        copies: dict[str, Any] = {}
        self.waited = 0.0
        self._later = {}
        on_gpu: dict[str, Tensor] = {}
        for name in names:
            value = entries[name]
            if not isinstance(value, Tensor):
                copies[name] = copy.deepcopy(value)
                continue
            part = local(value).detach()
            copies[name] = self._memory(name, part)
            if part.is_cuda:
                on_gpu[name] = part
            elif name in stable:
                self._later[name] = part
            else:
                copies[name].copy_(part)
        self.copies = copies  # and the memory of what is no longer written goes
        if on_gpu:
            self._copy_from_gpu(on_gpu, stable)
        self._done.clear()

    def finish(self) -> None:
        """Make the copies that are left. The background calls it, once after each :meth:`begin`."""
        try:
            with torch.no_grad():
                for name, part in self._later.items():
                    _copy(self.copies[name], part)
        finally:
            self._later = {}
            self._done.set()
        if self._copied is not None:
            self._copied.synchronize()

    def wait(self, *_: Any) -> None:
        """Before an optimizer changes anything: all copies have been made, or will have been when its kernels run."""
        if self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)
        if not self._done.is_set():
            began = time.monotonic()
            with heartbeat.current().phase(Phase.CHECKPOINT):
                self._done.wait()
            self.waited += time.monotonic() - began

    def _memory(self, name: str, part: Tensor) -> Tensor:
        known = self.copies.get(name)
        if isinstance(known, Tensor) and known.shape == part.shape and known.dtype == part.dtype:
            return known
        return torch.empty(part.shape, dtype=part.dtype, pin_memory=part.is_cuda)

    def _copy_from_gpu(self, parts: dict[str, Tensor], stable: frozenset[str]) -> None:
        """Enqueue copies on a stream of their own. (Never run here: it needs a GPU.)"""
        if self._stream is None:
            self._stream, self._copied = torch.cuda.Stream(), torch.cuda.Event()  # type: ignore[no-untyped-call]
        assert self._copied is not None
        self._stream.wait_stream(torch.cuda.current_stream())  # what the last step changed
        with torch.cuda.stream(self._stream):
            for name in sorted(parts, key=lambda name: name in stable):
                self.copies[name].copy_(parts[name], non_blocking=True)
            self._copied.record()
        if not parts.keys() <= stable:
            torch.cuda.current_stream().wait_event(self._copied)


def _copy(target: Tensor, source: Tensor) -> None:
    """As copy_, by this thread alone: a pool of threads for it would fight with the training's own for the cores."""
    if type(source) is Tensor and source.layout == torch.strided and source.is_contiguous():
        ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)  # without the interpreter's lock
    else:
        target.copy_(source)
