"""The launcher's side of the warm spare: keep one process ready, ask it for workers, hear of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankzero.launch import spare_process

BASELINE = ("torch", "torch._dynamo", "torch.nn.parallel.distributed")
"""What building the first DDP model or optimizer imports, directly and in the end."""
ANSWER_WITHIN = 5.0
"""Seconds for a fork; a spare that is still importing is not waited for longer than it takes to import."""


class SpareError(Exception):
    """The spare cannot start a worker now; the message says why. A plain start is always possible."""


class Spare:
    """One spare process. All methods run on the launcher's event loop."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._lock = asyncio.Lock()
        self._reader = asyncio.create_task(self._read())
        self.memory = 0
        self.pid = process.pid

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> Spare:
        """Start the process; it serves at once and imports when asked (:meth:`preload`)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-u",
                "-m",
                spare_process.__name__,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                env={**environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                stdin=asyncio.subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        return cls(process, ours)

    @property
    def alive(self) -> bool:
        """False once the process has ended; its workers end with it."""
        return not self._reader.done()

    async def preload(self, modules: Sequence[str], say: Callable[[str], None]) -> None:
        """Import ``modules`` in the spare; what fails is said and left to the workers. Raises SpareError."""
        async with self._lock:
            answer = await self._ask({"preload": list(modules)}, [], timeout=None)
        self.memory = answer["memory"]
        for name, reason in answer["preloaded"].items():
            say(f"the warm spare could not import {name}: {reason}")

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], output: int
    ) -> tuple[int, asyncio.Future[int]]:
        """Start a worker that writes to descriptor ``output``; returns its pid and its end.

        The future's result follows asyncio: the exit status, negative for a signal. Raises :class:`SpareError`.
        """
        request = os.memfd_create("rankzero-worker")
        with os.fdopen(request, "w", closefd=True) as file:
            json.dump({"argv": list(argv), "env": dict(environment), "cwd": str(os.getcwd())}, file)  # noqa: PTH109
            file.flush()
            os.lseek(request, 0, os.SEEK_SET)
            async with self._lock:
                answer = await self._ask({}, [request, output], timeout=ANSWER_WITHIN)
        if "refused" in answer:
            raise SpareError(answer["refused"])
        pid = int(answer["started"])
        return pid, self._end_of(pid)

    async def close(self) -> None:
        """End the process; workers that are left end with it."""
        self._reader.cancel()
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _ask(self, request: dict[str, Any], descriptors: list[int], timeout: float | None) -> dict[str, Any]:
        if not self.alive:
            raise SpareError("it has ended")
        packet = json.dumps(request).encode()
        try:
            if descriptors:
                socket.send_fds(self._connection, [packet], descriptors)
            else:
                self._connection.send(packet)
            answer = asyncio.create_task(self._answers.get())
            done, _ = await asyncio.wait({answer, self._reader}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except OSError as error:
            raise SpareError(f"it cannot be reached: {error.strerror}") from error
        if answer in done:
            return answer.result()
        answer.cancel()
        raise SpareError("it has ended" if self._reader.done() else f"it did not answer within {timeout} s")

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while packet := await loop.sock_recv(self._connection, spare_process.PACKET):
                answer = json.loads(packet)
                if "ended" in answer:
                    self._end_of(answer["ended"]).set_result(answer["status"])
                else:
                    self._answers.put_nowait(answer)
        except OSError:
            pass
        finally:
            for end in self._ends.values():
                if not end.done():
                    end.set_result(-9)  # the kernel ends workers with their spare

    def _end_of(self, pid: int) -> asyncio.Future[int]:
        return self._ends.setdefault(pid, asyncio.get_running_loop().create_future())
