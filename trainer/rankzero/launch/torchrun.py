"""``launch.method: torchrun``: one torchrun a node and attempt starts the workers, instead of the launcher itself.

Rendezvous is static: the node rank says who hosts the store, and nobody compares host names. torchrun restarts
nothing. It ends with status 1 whatever happened, so which rank failed, and how, is read from the report that it
prints. Workers write into a pipe each (``torchrun_worker.py``), not through torchrun, which would mix their lines or
keep all of them in files.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankzero.launch import torchrun_worker
from rankzero.launch.logs import Log, Logs
from rankzero.launch.output import Output
from rankzero.launch.protocol import WorkerFailed
from rankzero.launch.starters import Started, open_stream, start_plainly
from rankzero.launch.workers import Worker, WorkerGroup, error_of, exit_code, signal_of

SHUTDOWN_MARGIN = 2
"""Seconds that torchrun has to kill its workers and end, within launch.stopTimeout."""


async def start_torchrun(
    script: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    stop_timeout: int,
    attempt: int,
    node_rank: int,
    logs: Logs,
) -> WorkerGroup:
    """Start torchrun for one worker per environment; ``folder`` is the attempt's own. Raises OSError.

    Returns at once: torchrun starts the workers when it has met those of the other nodes.
    """
    common = {
        name: value
        for name, value in environments[0].items()
        if all(environment.get(name) == value for environment in environments)
    }
    ranks = []
    try:
        for environment in environments:
            own = {name: value for name, value in environment.items() if name not in common}
            rank = int(environment["RANK"])
            ranks.append(await Rank.prepare(rank, own, folder, logs.open(attempt, rank)))
        error_file = folder / "torchrun-error.json"
        started = await start_plainly(
            command(script, common, folder, stop_timeout),
            {**common, torchrun_worker.ENV_FOLDER: str(folder), "TORCHELASTIC_ERROR_FILE": str(error_file)},
        )
    except BaseException:
        for prepared in ranks:
            prepared.close()
        raise
    return WorkerGroup([Torchrun(started, ranks, folder, error_file, attempt)], attempt, node_rank)


def command(script: Sequence[str], environment: Mapping[str, str], folder: Path, stop_timeout: int) -> list[str]:
    """The interpreter's arguments. ``stop_timeout``: seconds from SIGTERM until the launcher sends SIGKILL."""
    address = environment["MASTER_ADDR"]
    options = {
        "rdzv-backend": "static",
        "rdzv-id": environment["TORCHELASTIC_RUN_ID"],
        "nnodes": environment["GROUP_WORLD_SIZE"],
        "node-rank": environment["GROUP_RANK"],
        "nproc-per-node": environment["LOCAL_WORLD_SIZE"],
        "master-addr": f"[{address}]" if ":" in address else address,
        "master-port": environment["MASTER_PORT"],
        "max-restarts": "0",
        # Its own default, 30 s, would outlast the launcher's patience (and a pod's grace).
        "shutdown-timeout": str(max(1, stop_timeout - SHUTDOWN_MARGIN)),
        "log-dir": str(folder / "torchrun"),
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    return ["-m", "torch.distributed.run", *flags, "--module", torchrun_worker.__name__, *script]


class Rank:
    """One of torchrun's workers: its output, its process, and when that ended."""

    def __init__(self, rank: int, stream: asyncio.StreamReader, held: int, log: Log) -> None:
        self.rank = rank
        self.log = log
        self.ended_at = 0.0
        """Seconds since the epoch; 0 while it lives or is not known."""
        self._output: Output | None = None
        self.pid = 0
        """0 before it has started."""
        self._process: int | None = None
        self._held: int | None = held
        self._attaching = asyncio.create_task(self._attach(stream))

    @classmethod
    async def prepare(cls, rank: int, environment: Mapping[str, str], folder: Path, log: Log) -> Rank:
        """Lay out for the worker's start what it needs beyond torchrun's own variables. Raises OSError."""
        torchrun_worker.environment_file(folder, rank).write_text(json.dumps(dict(environment)), encoding="utf-8")
        pipe = torchrun_worker.output_pipe(folder, rank)
        os.mkfifo(pipe, 0o600)
        read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        held = os.open(pipe, os.O_WRONLY)  # without any writer the stream would be at its end now
        return cls(rank, await open_stream(read), held, log)

    async def _attach(self, stream: asyncio.StreamReader) -> None:
        """The first line is the worker's pid, the rest what it prints."""
        line = await stream.readline()
        if not line:
            return  # torchrun ended before it started workers
        self._output = Output(stream, self.log)
        self.pid = int(line)
        try:
            self._process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._note_end()
        else:
            asyncio.get_running_loop().add_reader(self._process, self._note_end)

    def _note_end(self) -> None:
        """torchrun looks for ended workers ten times a second, and takes those of one look in the order of ranks."""
        self.ended_at = time.time()
        self._forget_process()

    def _forget_process(self) -> None:
        if self._process is not None:
            asyncio.get_running_loop().remove_reader(self._process)
            os.close(self._process)
            self._process = None

    async def finish(self) -> None:
        """torchrun has ended: end the worker and its children, which are in a session of their own, and read on."""
        self.close()
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._output is not None:
            await self._output.finish()
        self._attaching.cancel()
        self._forget_process()

    def close(self) -> None:
        """Let the stream end with its last writer."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


class Torchrun(Worker):
    """The torchrun process. Its failure is that of the worker that failed first."""

    def __init__(self, started: Started, ranks: Sequence[Rank], folder: Path, error_file: Path, attempt: int) -> None:
        self._ranks = {rank.rank: rank for rank in ranks}
        self._folder = folder
        self._report = FailureReport(f"attempt {attempt} torchrun")
        super().__init__(started, ranks[0].rank, 0, error_file, self._report)

    @property
    def ranks(self) -> dict[int, int]:
        """See :class:`Worker`; torchrun itself counts for its first rank, as in :meth:`failure`."""
        return {**super().ranks, **{rank.pid: rank.rank for rank in self._ranks.values() if rank.pid}}

    async def _wait(self, end: asyncio.Future[int]) -> None:
        await super()._wait(end)
        await asyncio.gather(*(rank.finish() for rank in self._ranks.values()))

    def failure(self, attempt: int, node_rank: int) -> WorkerFailed:
        """See :class:`Worker`. Where torchrun itself was ended it is named, in the place of its first rank."""
        own, first = super().failure(attempt, node_rank), self._first_failure()
        if first is None:
            itself = "torchrun itself, with all of its workers"
            return dataclasses.replace(own, error=f"{itself}: {own.error}" if own.error else itself)
        rank = self._ranks[first.rank]
        return dataclasses.replace(
            own,
            rank=first.rank,
            local_rank=first.local_rank,
            exit_code=exit_code(first.exitcode),
            signal=signal_of(first.exitcode),
            error=error_of(self._error_file_of(first.local_rank), rank.log.last_lines),
            last_lines=list(rank.log.last_lines),
            time=rank.ended_at or own.time,
        )

    def _error_file_of(self, local_rank: int) -> Path:
        """torchrun copies one of them to its own, that of the rank which it takes for the cause."""
        found = self._folder.glob(f"torchrun/*/attempt_*/{local_rank}/error.json")
        return next(found, self._folder / "none")

    def _first_failure(self) -> Failure | None:
        failed = [failure for failure in self._report.failures if failure.rank in self._ranks]
        seen = [failure for failure in failed if self._ranks[failure.rank].ended_at]
        if seen:
            return min(seen, key=lambda failure: self._ranks[failure.rank].ended_at)
        return failed[-1] if failed else None


@dataclass(frozen=True)
class Failure:
    """A failed worker as torchrun reports it; ``exitcode`` is negative for a signal."""

    rank: int
    local_rank: int
    exitcode: int


class FailureReport(Log):
    """torchrun's own lines, which name the failed workers at their end. The last one is what it takes for the cause."""

    RANK = re.compile(r"  rank      : (\d+) \(local_rank: (\d+)\)")
    EXIT = re.compile(r"  exitcode  : (-?\d+) \(pid: \d+\)")

    def __init__(self, mark: str) -> None:
        super().__init__(mark, on_stdout=True)
        self.failures: list[Failure] = []
        self._rank: tuple[int, int] | None = None

    def write(self, lines: bytes) -> None:
        """See :class:`Log`."""
        super().write(lines)
        for line in lines.decode(errors="replace").split("\n"):
            self._read(line)

    def _read(self, line: str) -> None:
        if found := self.RANK.match(line):
            self._rank = int(found[1]), int(found[2])
        elif self._rank is not None and (found := self.EXIT.match(line)):
            self.failures.append(Failure(*self._rank, int(found[1])))
            self._rank = None
