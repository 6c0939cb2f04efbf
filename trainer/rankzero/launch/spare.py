"""The launcher's side of the warm spare: keep one process ready, ask it for workers, hear of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rankzero.launch import spare_process
from rankzero.launch.processes import KILL_WITHIN

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
        self._requests = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
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
                cwd="/",  # not among the script's own modules, which a -m would put first on the path
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a signal to the launcher's group is the launcher's to pass on
            )
        finally:
            theirs.close()
        return cls(process, ours)

    @property
    def alive(self) -> bool:
        """False once the process has ended; its workers end with it."""
        return not self._reader.done()

    async def preload(
        self, modules: Sequence[str], say: Callable[[str], None], *, quietly: Collection[str] = ()
    ) -> None:
        """Import ``modules`` in the spare; what fails is said, but for those ``quietly``, and left to the workers.

        For a spare without workers: it hears of no worker's end while it imports, and an import that crashes
        ends them. Raises :class:`SpareError`, also where the spare cannot be forked afterwards.
        """
        answer = await self._ask({"preload": list(modules)}, [], timeout=None)
        self.memory = answer["memory"]
        for name, reason in answer["failed"].items():
            if name not in quietly:
                say(f"the warm spare could not import {name}: {reason}")
        if answer["unsafe"]:
            raise SpareError(f"{answer['unsafe']}; OMP_NUM_THREADS=1 keeps numerical libraries from doing so")

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], output: int
    ) -> tuple[int, asyncio.Future[int]]:
        """Start a worker that writes to descriptor ``output``; returns its pid and its end.

        The future's result follows asyncio: the exit status, negative for a signal. Raises :class:`SpareError`.
        """
        wanted = {"argv": list(argv), "env": dict(environment), "cwd": os.getcwd()}  # noqa: PTH109
        answer = await self._ask(wanted, [output], timeout=ANSWER_WITHIN)
        if "refused" in answer:
            raise SpareError(answer["refused"])
        end: asyncio.Future[int] = answer["end"]
        return int(answer["started"]), end

    async def close(self) -> None:
        """End the process; workers that are left end with it. Waits no longer than :data:`KILL_WITHIN`."""
        self._reader.cancel()
        self._connection.close()
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            self._process.kill()
            async with asyncio.timeout(KILL_WITHIN):  # a file system that hangs holds it in a system call
                await self._process.wait()

    async def _ask(self, wanted: dict[str, Any], descriptors: list[int], timeout: float | None) -> dict[str, Any]:
        if not self.alive:
            raise SpareError("it has ended")
        self._requests += 1
        number = self._requests
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        content = os.memfd_create("rankzero-request")
        try:
            with os.fdopen(content, "w", closefd=False) as file:
                json.dump(wanted, file)
            os.lseek(content, 0, os.SEEK_SET)
            socket.send_fds(self._connection, [json.dumps({"request": number}).encode()], [content, *descriptors])
            either: set[asyncio.Future[Any]] = {answer, self._reader}
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
        except OSError as error:
            raise SpareError(f"it cannot be reached: {error.strerror}") from error
        finally:
            os.close(content)
            del self._answers[number]  # a later answer finds nobody, and its worker is ended
        raise SpareError("it has ended" if self._reader.done() else f"it did not answer within {timeout} s")

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                while packet := await loop.sock_recv(self._connection, spare_process.PACKET):
                    self._hear(json.loads(packet))
        finally:
            for end in self._ends.values():
                end.set_result(-signal.SIGKILL)  # the kernel ends workers with their spare
            self._ends.clear()

    def _hear(self, said: dict[str, Any]) -> None:
        if "ended" in said:
            self._end_of(said["ended"]).set_result(said["status"])
            del self._ends[said["ended"]]
            return
        answer = self._answers.get(said["answer"])
        if answer is not None and not answer.done():
            # With its end, which may be heard before this answer is taken.
            answer.set_result({**said, "end": self._end_of(said["started"])} if "started" in said else said)
        elif "started" in said:
            self._end_of(said["started"])
            with contextlib.suppress(ProcessLookupError):
                os.kill(said["started"], signal.SIGKILL)

    def _end_of(self, pid: int) -> asyncio.Future[int]:
        return self._ends.setdefault(pid, asyncio.get_running_loop().create_future())
