"""The training processes of one node in one attempt: start, watch, stop, last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rankzero.files import read_json
from rankzero.launch.logs import Log, Logs, without_controls
from rankzero.launch.output import PIPE_DRAIN_SECONDS, Output
from rankzero.launch.processes import KILL_WITHIN
from rankzero.launch.protocol import WorkerFailed
from rankzero.launch.starters import Started, Starter

LONGEST_ERROR = 1000
"""Characters of the error in a failure record."""
CANNOT_START = 126
"""Exit code of a worker that could not be started, as in the shell."""

OnEnd = Callable[[WorkerFailed | None], Awaitable[None]]


class Worker:
    """One process, leader of a process group of its own so that its children can be stopped with it."""

    def __init__(self, started: Started, rank: int, local_rank: int, error_file: Path, log: Log) -> None:
        self.pid = started.pid
        self.rank = rank
        self.local_rank = local_rank
        self.status: int | None = None
        """As asyncio gives it (negative: the signal); None while the process lives."""
        self.ended_at = 0.0
        self.output = Output(started.output, log)
        self._error_file = error_file
        self.ended = asyncio.create_task(self._wait(started.end))
        """Done once the process is gone and its last lines are read."""

    @property
    def ranks(self) -> dict[int, int]:
        """Rank by process id, of the processes that run the script."""
        return {self.pid: self.rank}

    async def _wait(self, end: asyncio.Future[int]) -> None:
        status = await end
        self.ended_at, self.status = time.time(), status
        self.signal_group(signal.SIGKILL)  # data loader workers and other children do not outlive their parent
        await self.output.finish()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children; nothing happens where none is left."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # gone, or forked a moment ago and not yet the leader of its group
            if self.status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def failure(self, attempt: int, node_rank: int) -> WorkerFailed:
        """Describe an end with a status other than 0, with the error that torch's ``@record`` wrote, if any."""
        assert self.status
        return WorkerFailed(
            attempt=attempt,
            node_rank=node_rank,
            rank=self.rank,
            local_rank=self.local_rank,
            exit_code=exit_code(self.status),
            signal=signal_of(self.status),
            error=error_of(self._error_file, self.output.last_lines),
            last_lines=list(self.output.last_lines),
            time=self.ended_at,
        )


class WorkerGroup:
    """The workers of one node in one attempt."""

    def __init__(self, workers: Sequence[Worker], attempt: int, node_rank: int) -> None:
        self.workers = list(workers)
        self.attempt = attempt
        self.node_rank = node_rank
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        starter: Starter,
        script: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        attempt: int,
        node_rank: int,
        logs: Logs,
    ) -> WorkerGroup:
        """Start one process per environment. Raises OSError or ValueError where one cannot be started."""
        workers: list[Worker] = []
        try:
            for environment in environments:
                rank = int(environment["RANK"])
                workers.append(
                    Worker(
                        await starter(script, environment),
                        rank=rank,
                        local_rank=int(environment["LOCAL_RANK"]),
                        error_file=Path(environment["TORCHELASTIC_ERROR_FILE"]),
                        log=logs.open(attempt, rank),
                    )
                )
        except BaseException:  # cancelled half-way as well: none of them may be left
            for worker in workers:
                worker.signal_group(signal.SIGKILL)
            raise
        return cls(workers, attempt, node_rank)

    def on_end(self, report: OnEnd) -> None:
        """Call ``report`` once: with None when all workers have ended with status 0, or with the first failure."""

        async def watch() -> None:
            await report(await self.wait())

        self._watch = asyncio.create_task(watch())

    async def wait(self) -> WorkerFailed | None:
        """Wait until every worker has ended with status 0 (None) or one has failed (the earliest failure)."""
        pending = {worker.ended for worker in self.workers}
        while pending and not self._failed:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if not self._failed:
            return None
        earliest = min(self._failed, key=lambda worker: worker.ended_at)
        await asyncio.wait({earliest.ended})
        return earliest.failure(self.attempt, self.node_rank)

    async def stop(self, grace: float) -> list[int]:
        """SIGTERM, up to ``grace`` seconds, SIGKILL; returns the ids of processes that are left all the same.

        None is, but for those in a system call that cannot be interrupted: a hard mount whose server is away, a GPU
        that is lost. A failure that came before is still reported; what ends from now on ends because it is stopped.
        """
        if self._watch is not None:
            if self._failed:
                await asyncio.wait({self._watch}, timeout=2 * PIPE_DRAIN_SECONDS)
            self._watch.cancel()
        for worker in self._alive:
            worker.signal_group(signal.SIGTERM)
            worker.signal_group(signal.SIGCONT)  # a stopped process hears SIGTERM only once it goes on
        await asyncio.wait({worker.ended for worker in self.workers}, timeout=grace)
        for worker in self._alive:
            worker.signal_group(signal.SIGKILL)
        await asyncio.wait({worker.ended for worker in self.workers}, timeout=KILL_WITHIN)
        return [worker.pid for worker in self._alive]

    @property
    def _alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.status is None]

    @property
    def _failed(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.status]


def could_not_start(error: Exception, attempt: int, node_rank: int, rank: int) -> WorkerFailed:
    """The failure of a node that could not start its workers."""
    return WorkerFailed(
        attempt=attempt,
        node_rank=node_rank,
        rank=rank,
        local_rank=0,
        exit_code=CANNOT_START,
        signal="",
        error=f"could not be started: {error}",
        last_lines=[],
        time=time.time(),
    )


def error_of(error_file: Path, last_lines: Sequence[str]) -> str:
    """The error that torch's ``@record`` wrote, or else the last line of the output that reads like one."""
    document = read_json(error_file, damaged_is_absent=True)
    message = document.get("message", "") if isinstance(document, dict) else ""
    if isinstance(message, dict):
        message = message.get("message", "")
    error = str(message) or next((line for line in reversed(last_lines) if "Error" in line), "")
    return without_controls(error)[:LONGEST_ERROR]


def exit_code(status: int) -> int:
    """A process's status, negative for a signal, as the shell gives it."""
    return 128 - status if status < 0 else status


def signal_of(status: int) -> str:
    """``SIGKILL`` for -9, empty where no signal ended it; real-time signals have no name in Python."""
    if status >= 0:
        return ""
    number = -status
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
