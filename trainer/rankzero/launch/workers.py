"""The training processes of one node in one attempt: start, watch, stop, last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankzero.files import read_json
from rankzero.launch.protocol import WorkerFailed
from rankzero.launch.starters import Started, Starter

LAST_LINES, LAST_LINE_LENGTH = 20, 300
"""Lines of a worker's output that its failure record keeps, and characters of each (a message has a size limit)."""
PIPE_DRAIN_SECONDS = 2.0
"""How long to read on after a worker's end: a grandchild may hold its pipe open."""


class Worker:
    """One process, leader of a process group of its own so that its children can be stopped with it."""

    def __init__(self, started: Started, rank: int, local_rank: int, error_file: Path) -> None:
        self.pid = started.pid
        self._started = started
        self.rank = rank
        self.local_rank = local_rank
        self.error_file = error_file
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.ended_at = 0.0
        self._output = asyncio.create_task(self._copy_output())
        self.ended = asyncio.create_task(self._wait())
        """asyncio's status (negative: the signal), once the process and its children are gone."""

    async def _copy_output(self) -> None:
        """Pass the output on line by line, marked with the rank, and keep its end."""
        mark = f"[rank{self.rank}] ".encode()
        rest = b""
        while chunk := await self._started.output.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > 65536:  # a progress bar without line ends must not grow in memory
                lines, rest = [*lines, rest], b""
            self._emit(mark, lines)
        if rest:
            self._emit(mark, [rest])

    def _emit(self, mark: bytes, lines: list[bytes]) -> None:
        for line in lines:
            self.last_lines.append(line.decode(errors="replace")[:LAST_LINE_LENGTH])
            sys.stdout.buffer.write(mark + line + b"\n")
        sys.stdout.buffer.flush()

    async def _wait(self) -> int:
        status = await self._started.end
        self.ended_at = time.time()
        self.kill_group()  # data loader workers and other children do not outlive their parent
        await asyncio.wait([self._output], timeout=PIPE_DRAIN_SECONDS)
        self._output.cancel()
        return status

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children; nothing happens where none is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill_group(self) -> None:
        """End the process and its children at once."""
        self.signal_group(signal.SIGKILL)

    def failure(self, attempt: int, node_rank: int) -> WorkerFailed:
        """Describe an end with a status other than 0, with the error that torch's ``@record`` wrote, if any."""
        status = self.ended.result()
        return WorkerFailed(
            attempt=attempt,
            node_rank=node_rank,
            rank=self.rank,
            local_rank=self.local_rank,
            exit_code=128 - status if status < 0 else status,
            signal=signal.Signals(-status).name if status < 0 else "",
            error=self._error()[:1000],
            last_lines=list(self.last_lines),
            time=self.ended_at,
        )

    def _error(self) -> str:
        try:
            document = read_json(self.error_file)
        except ValueError:
            document = None
        message = document.get("message", "") if isinstance(document, dict) else ""
        if isinstance(message, dict):
            message = message.get("message", "")
        return str(message) or next((line for line in reversed(self.last_lines) if "Error" in line), "")


class WorkerGroup:
    """The workers of one node in one attempt."""

    def __init__(self, workers: Sequence[Worker], attempt: int, node_rank: int) -> None:
        self.workers = list(workers)
        self.attempt = attempt
        self.node_rank = node_rank

    @classmethod
    async def start(
        cls,
        starter: Starter,
        script: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        attempt: int,
        node_rank: int,
    ) -> WorkerGroup:
        """Start one process per environment. Raises OSError where the program cannot be started."""
        workers: list[Worker] = []
        try:
            for environment in environments:
                workers.append(
                    Worker(
                        await starter(script, environment),
                        rank=int(environment["RANK"]),
                        local_rank=int(environment["LOCAL_RANK"]),
                        error_file=Path(environment["TORCHELASTIC_ERROR_FILE"]),
                    )
                )
        except OSError:
            for worker in workers:
                worker.kill_group()
            raise
        return cls(workers, attempt, node_rank)

    async def wait(self) -> WorkerFailed | None:
        """Wait until every worker has ended with status 0 (None) or one has failed (its failure)."""
        pending = {worker.ended for worker in self.workers}
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for worker in self.workers:
                if worker.ended.done() and worker.ended.result():
                    return worker.failure(self.attempt, self.node_rank)
        return None

    async def stop(self, grace: float) -> None:
        """SIGTERM, up to ``grace`` seconds, SIGKILL; returns when no process of the group is left."""
        for worker in self.alive:
            worker.signal_group(signal.SIGTERM)
        await asyncio.wait([worker.ended for worker in self.workers], timeout=grace)
        for worker in self.alive:
            worker.kill_group()
        await asyncio.gather(*(worker.ended for worker in self.workers))

    @property
    def alive(self) -> list[Worker]:
        """Workers that have not ended."""
        return [worker for worker in self.workers if not worker.ended.done()]


def reap_orphans(known: set[int]) -> None:
    """Collect ended processes that were handed to PID 1; ``known`` are left to those who wait for them."""
    while (child := _ended_child()) is not None and child not in known:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def _ended_child() -> int | None:
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info else None
