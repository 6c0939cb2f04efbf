"""One launcher's side of the group: join, run the workers that rank 0 asks for, report, leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.errors import Rank0UnreachableError
from rankzero.launch import beats, protocol, reach, volume
from rankzero.launch.environment import common_environment, worker_environments
from rankzero.launch.gpus import Gpus
from rankzero.launch.identity import Identity
from rankzero.launch.interface import interface_of, source_address
from rankzero.launch.logs import Logs
from rankzero.launch.memory import Cgroup, KillCount
from rankzero.launch.processes import kill_strays, reap_strays
from rankzero.launch.protocol import (
    Dump,
    Dumped,
    Finish,
    Heartbeat,
    Hello,
    Leaving,
    Message,
    ProtocolError,
    Refused,
    Report,
    Save,
    Start,
    Stop,
    Stopped,
    Welcome,
    WorkerFailed,
    WorkersDone,
    receive,
    send,
)
from rankzero.launch.starters import Starter, start_plainly
from rankzero.launch.torchrun import start_torchrun
from rankzero.launch.warm import Warmth
from rankzero.launch.workers import WorkerGroup, could_not_start

HEARTBEAT_EVERY = 1.0
LEAVE_MARGIN = 5.0
"""Seconds beyond the time for saving until a pod that is being stopped acts without rank 0."""


class Member:
    """Runs on every node rank, rank 0 included. ``say`` prints a line for a person.

    ``cgroup`` is the pod's, None where there is none; ``last_words`` are those of the launcher before this one.
    """

    def __init__(
        self,
        launch: LaunchConfig,
        identity: Identity,
        config_path: str,
        say: Callable[[str], None],
        cgroup: Cgroup | None,
        last_words: str,
    ) -> None:
        self.launch = launch
        self.identity = identity
        self.config_path = config_path
        self.say = say
        self.state = "waiting"
        self.joined = False
        """True once this pod was part of the group, also while rank 0 is being replaced: it is not what is missing."""
        self.waiting_reason = "has not tried to reach rank 0 yet"
        self.last_failure: WorkerFailed | None = None
        self.warmth: Warmth | None = None
        self._cgroup = cgroup
        self._kills = KillCount(cgroup)
        self._last_words = last_words
        self._logs = Logs(launch, identity.state_dir, say)
        self._gpus = Gpus(say)
        self._group: WorkerGroup | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        """The attempt's, while there are workers."""
        self._attempt = 0
        self._changing = asyncio.Lock()
        """Held while workers are started or stopped: a stop that is under way is waited for, not repeated."""
        self._idle = asyncio.Event()
        """Set while there are no workers."""
        self._idle.set()

    async def run(self) -> Finish:
        """Join and work until the run has ended, joining again whenever rank 0 was lost.

        Raises :class:`Rank0UnreachableError` at the deadline or where rank 0 refuses this pod for good.
        """
        remembering = asyncio.create_task(self._remember_gpus())
        if self.launch.method == "torchrun":
            self.say("launch.method is torchrun: it starts the workers, and the warm spare is not used")
        elif self.launch.warm:
            self.warmth = Warmth(
                common_environment(os.environ, self.launch), self.launch.preload, self.launch.script, self.say
            )
            await self.warmth.open()
        try:
            while True:
                reader, self._writer = await self._join()
                self.joined = True
                finish = await self._session(reader, self._writer)
                if finish is not None:
                    self.state = finish.state
                    return finish
                self.say("lost rank 0; workers are stopped, joining again")
        finally:
            remembering.cancel()
            await self._stop_workers(float(self.launch.stop_timeout))
            if self.warmth is not None:
                await self.warmth.close()

    @property
    def attempt(self) -> int:
        """Number of the attempt whose workers run here; 0 without workers."""
        return self._group.attempt if self._group is not None else 0

    async def leave(self, reason: str) -> None:
        """This pod is being stopped: tell rank 0, and go when the whole group has saved and stopped.

        Without an answer from rank 0 the workers are stopped here when the time for saving is over.
        """
        self.state = "leaving"
        if self._writer is not None:
            await send(self._writer, Leaving(reason))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.launch.save_timeout + LEAVE_MARGIN):
                    await self._idle.wait()
        with contextlib.suppress(TimeoutError):  # a start that hangs is ended with the task that it belongs to
            async with asyncio.timeout(self.launch.stop_timeout + LEAVE_MARGIN):
                await self._stop_workers(float(self.launch.stop_timeout))

    # --- Joining -----------------------------------------------------------------------------------------

    async def _join(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.state = "waiting"
        # Rank 0 talks to itself: no name, no Service, no policy in between.
        host = self.identity.pod_ip if self.identity.node_rank == 0 else self.identity.rank0_host
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.launch.rank0_timeout
        while True:
            left = max(0.0, deadline - clock())
            reader, writer = await reach.connect(host, self.launch.rendezvous_port, timeout=left, say=self._waiting)
            reason = await self._greet(reader, writer, host)
            if not reason:
                self.state, self.waiting_reason = "joined", ""
                return reader, writer
            writer.close()
            if clock() >= deadline:
                raise Rank0UnreachableError(
                    f"rank 0 did not take this pod in within {self.launch.rank0_timeout} s: {reason}",
                    hint="look at the log of node rank 0",
                )
            if reason != self.waiting_reason:
                self._waiting(reason)
            await asyncio.sleep(reach.LONGEST_PAUSE)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> str:
        """Introduce this pod; why it is not taken in now, empty where it is. Raises where it never will be."""
        me = self.identity
        hello = Hello(
            version=protocol.VERSION,
            run=me.run_key,
            node_rank=me.node_rank,
            pod_name=me.pod_name,
            pod_uid=me.pod_uid,
            boot=me.boot,
            node_name=me.node_name,
            config_hash=me.config_hash,
            last_words=self._last_words,
        )
        await send(writer, hello)
        try:
            async with asyncio.timeout(reach.CONNECT_TIMEOUT):
                answer = await receive(reader)
        except TimeoutError:
            return "something accepts connections in rank 0's place and does not answer; a proxy, or a hung launcher"
        except ProtocolError as error:
            raise Rank0UnreachableError(
                f"{host}:{self.launch.rendezvous_port} is not a rankzero coordinator: {error}",
                hint="another program listens on this port of the pod or, with the host network, of the node",
            ) from error
        if isinstance(answer, Welcome):
            self.say(f"joined the group of {answer.nodes} as node rank {me.node_rank}")
            return ""
        if isinstance(answer, Refused):
            if answer.final:
                raise Rank0UnreachableError(
                    f"rank 0 refused this pod: {answer.reason}", hint="look for a second release or an old pod"
                )
            return f"rank 0 does not take this pod in: {answer.reason}"
        return "rank 0 closed the connection"

    def _waiting(self, reason: str) -> None:
        self.waiting_reason = reason
        self.say(reason)

    # --- Working -----------------------------------------------------------------------------------------

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Finish | None:
        """Do what rank 0 says; the end of the run, or None where rank 0 is lost. Workers are gone afterwards."""
        beats = asyncio.create_task(self._keep_beating(writer))
        try:
            while (message := await self._next(reader)) is not None:
                if isinstance(message, Finish):
                    return message
                if isinstance(message, Start):
                    await self._start_workers(message, writer)
                elif isinstance(message, Save):
                    self._ask_to_save()
                elif isinstance(message, Dump):
                    await send(writer, Dumped(message.attempt, await self._dump()))
                elif isinstance(message, Stop):
                    self.say(f"stopping the workers of attempt {message.attempt}: {message.reason}")
                    report = await self._stop_workers(message.grace)
                    if report is not None:
                        await send(writer, report)
                    await send(writer, Stopped(message.attempt))
            return None
        finally:
            beats.cancel()
            writer.close()
            await self._stop_workers(float(self.launch.stop_timeout))

    async def _next(self, reader: asyncio.StreamReader) -> Message | None:
        """The next message but heartbeats; None where rank 0 is silent for too long, gone, or not making sense."""
        while True:
            try:
                async with asyncio.timeout(self.launch.heartbeat_timeout):
                    message = await receive(reader)
            except TimeoutError:
                self.say(f"rank 0 sent no heartbeat for {self.launch.heartbeat_timeout} s")
                return None
            except ProtocolError as error:
                self.say(f"rank 0 sent something strange: {error}")
                return None
            if not isinstance(message, Heartbeat):
                return message

    async def _start_workers(self, start: Start, writer: asyncio.StreamWriter) -> None:
        async with self._changing:
            self.state = "running"
            self._idle.clear()
            await self._gpus.wait_until_free()
            self._folder = beats.attempt_folder(start.attempt)
            self._attempt = start.attempt
            folder = Path(self._folder.name)
            starter: Starter = start_plainly
            base = {**os.environ, contract.ENV_CONFIG: self.config_path}
            if self.warmth is not None:
                starter, extra = await self.warmth.starter()
                base |= extra
            environments = worker_environments(base, self.launch, self.identity, start, self._interface(start), folder)
            script = [self.launch.script, *self.launch.args]
            node_rank = self.identity.node_rank
            self._kills = KillCount(self._cgroup)
            try:
                if self.launch.method == "torchrun":
                    self._group = await start_torchrun(
                        script, environments, folder, self.launch.stop_timeout, start.attempt, node_rank, self._logs
                    )
                else:
                    self._group = await WorkerGroup.start(
                        starter, script, environments, start.attempt, node_rank, self._logs
                    )
            except (OSError, ValueError) as error:
                rank = self.identity.node_rank * self.launch.procs_per_node
                await self._report(could_not_start(error, start.attempt, self.identity.node_rank, rank), writer)
                return
            self._group.on_end(lambda failure: self._workers_ended(failure, start.attempt, writer))

    async def _remember_gpus(self) -> None:
        async with self._changing:  # no worker starts before, and nobody takes nvidia-smi for a stray
            await self._gpus.remember()

    def _ask_to_save(self) -> None:
        if self._folder is not None:
            self.say("asking the workers to save and leave")
            Path(self._folder.name, contract.STOP_FILE).touch()

    async def _dump(self) -> dict[str, str]:
        """Collect what the local ranks are doing and keep it on the volume; returns where each rank is."""
        if self._folder is None:
            return {}
        folder = Path(self._folder.name)
        where = await beats.dump(folder, self._ranks)
        target = self.identity.state_dir / contract.evidence_dir(self._attempt)
        await volume.attempt(lambda: beats.keep(folder, target), None, self.say)
        return where

    async def _workers_ended(self, failure: WorkerFailed | None, attempt: int, writer: asyncio.StreamWriter) -> None:
        if failure is None:
            await send(writer, self._beat())
            await send(writer, WorkersDone(attempt))
        else:
            await self._report(failure, writer)

    async def _report(self, failure: WorkerFailed, writer: asyncio.StreamWriter) -> None:
        self.last_failure = failure = self._kills.explain(failure)
        await send(writer, self._beat())
        await send(writer, failure)
        self.say(failure.summary)
        self._logs.show_end(failure)

    async def _stop_workers(self, grace: float) -> Report | None:
        """Returns what the ranks said last, where there were any."""
        async with self._changing:
            if self._group is not None:
                await self._group.stop(grace)
                self._group = None
            if left := await kill_strays(self._known_processes()):
                self.say(f"processes {left} do not end even by SIGKILL; going on beside them")
            await self._logs.close()
            last = None
            if self._folder is not None:
                last = beats.report(self._attempt, Path(self._folder.name), self._ranks)
                self._folder.cleanup()
                self._folder = None
            self._idle.set()
            return last

    def _beat(self) -> Heartbeat | Report:
        """This member is alive, and so are its ranks where it has any."""
        if self._folder is None:
            return Heartbeat()
        return beats.report(self._attempt, Path(self._folder.name), self._ranks)

    @property
    def _ranks(self) -> range:
        first = self.identity.node_rank * self.launch.procs_per_node
        return range(first, first + self.launch.procs_per_node)

    async def _keep_beating(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await send(writer, self._beat())
            if not self._changing.locked():  # a process that is just being started is not known yet
                reap_strays(self._known_processes())
            await asyncio.sleep(HEARTBEAT_EVERY)

    def _known_processes(self) -> set[int]:
        workers = {worker.pid for worker in self._group.workers} if self._group is not None else set()
        return workers | (self.warmth.pids if self.warmth is not None else set())

    def _interface(self, start: Start) -> str:
        """Name of the interface towards rank 0; rank 0 takes the one that owns its own address."""
        address = start.master_address
        try:
            name = interface_of(address if self.identity.node_rank == 0 else source_address(address))
        except OSError as error:
            name, reason = "", f": {error.strerror}"
        else:
            reason = ""
        if not name:
            self.say(f"no interface owns the address towards {address}{reason}; NCCL and gloo choose by themselves")
        return name
