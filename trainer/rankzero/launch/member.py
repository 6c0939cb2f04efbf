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
from rankzero.errors import Rank0UnreachableError, RankzeroError
from rankzero.launch import protocol, reach
from rankzero.launch.environment import common_environment, worker_environments
from rankzero.launch.identity import Identity
from rankzero.launch.interface import interface_of, source_address
from rankzero.launch.protocol import (
    Finish,
    Heartbeat,
    Hello,
    Leaving,
    Message,
    ProtocolError,
    Refused,
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
from rankzero.launch.warm import Warmth
from rankzero.launch.workers import WorkerGroup, reap_orphans

HEARTBEAT_EVERY = 1.0


class Member:
    """Runs on every node rank, rank 0 included. ``say`` prints a line for a person."""

    def __init__(self, launch: LaunchConfig, identity: Identity, config_path: str, say: Callable[[str], None]) -> None:
        self.launch = launch
        self.identity = identity
        self.config_path = config_path
        self.say = say
        self.state = "waiting"
        self.waiting_reason = "has not tried to reach rank 0 yet"
        self.group: WorkerGroup | None = None
        self.warmth: Warmth | None = None
        self.last_failure: WorkerFailed | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._watch: asyncio.Task[None] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    async def run(self) -> Finish:
        """Join and work until the run has ended, joining again whenever rank 0 was lost.

        Raises :class:`Rank0UnreachableError` at the deadline or where rank 0 refuses this pod for good.
        """
        if self.launch.warm:
            self.warmth = Warmth(common_environment(os.environ, self.launch), self.launch.preload, self.say)
            await self.warmth.open()
        try:
            return await self._run()
        finally:
            if self.warmth is not None:
                await self.warmth.close()

    async def _run(self) -> Finish:
        while True:
            reader, writer = await self._join()
            self._writer = writer
            beats = asyncio.create_task(self._beat(writer))
            try:
                finish = await self._session(reader, writer)
            finally:
                beats.cancel()
                writer.close()
                await self._stop_workers(float(self.launch.stop_timeout))
            if finish is not None:
                self.state = finish.state
                return finish
            self.say("lost rank 0; workers are stopped, joining again")

    async def leave(self, reason: str) -> None:
        """This pod is being stopped: tell rank 0, then stop the workers with their grace."""
        self.state = "leaving"
        if self._writer is not None:
            await send(self._writer, Leaving(reason))
        await self._stop_workers(float(self.launch.stop_timeout))

    # --- Joining -----------------------------------------------------------------------------------------

    async def _join(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.state = "waiting"
        # Rank 0 talks to itself: no DNS, no Service, no policy in between.
        host = "localhost" if self.identity.node_rank == 0 else self.identity.rank0_host
        deadline = asyncio.get_running_loop().time() + self.launch.rank0_timeout
        while True:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            reader, writer = await reach.connect(host, self.launch.rendezvous_port, timeout=left, say=self._waiting)
            try:
                answer = await self._greet(reader, writer)
            except ProtocolError as error:
                writer.close()
                raise Rank0UnreachableError(
                    f"{host}:{self.launch.rendezvous_port} is not a rankzero coordinator: {error}",
                    hint="another program listens on this port of the pod or, with the host network, of the node",
                ) from error
            if isinstance(answer, Welcome):
                self.say(f"joined the group of {answer.nodes} as node rank {self.identity.node_rank}")
                self.state, self.waiting_reason = "joined", ""
                return reader, writer
            writer.close()
            if isinstance(answer, Refused) and answer.final:
                raise Rank0UnreachableError(
                    f"rank 0 refused this pod: {answer.reason}", hint="look for a second release or an old pod"
                )
            self._waiting("rank 0 closed the connection")
            await asyncio.sleep(reach.FIRST_PAUSE)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
        me = self.identity
        hello = Hello(
            version=protocol.VERSION,
            run=me.run_key,
            node_rank=me.node_rank,
            pod_name=me.pod_name,
            pod_uid=me.pod_uid,
            boot=me.boot,
            address=me.pod_ip,
            node_name=me.node_name,
        )
        await send(writer, hello)
        try:
            return await asyncio.wait_for(receive(reader), reach.CONNECT_TIMEOUT)
        except TimeoutError:
            return None

    def _waiting(self, reason: str) -> None:
        self.waiting_reason = reason
        self.say(reason)

    # --- Working -----------------------------------------------------------------------------------------

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Finish | None:
        """Do what rank 0 says; the end of the run, or None where the connection is lost."""
        while True:
            try:
                message = await receive(reader)
            except ProtocolError as error:
                self.say(f"rank 0 sent something strange: {error}")
                return None
            if message is None or isinstance(message, Finish):
                return message
            if isinstance(message, Start):
                await self._start_workers(message, writer)
            elif isinstance(message, Stop):
                self.say(f"stopping the workers of attempt {message.attempt}: {message.reason}")
                await self._stop_workers(message.grace)
                await send(writer, Stopped(message.attempt))

    async def _start_workers(self, start: Start, writer: asyncio.StreamWriter) -> None:
        self.state = "running"
        self._scratch = tempfile.TemporaryDirectory(prefix=f"rankzero-attempt-{start.attempt}-")
        starter: Starter = start_plainly
        base = {**os.environ, contract.ENV_CONFIG: self.config_path}
        if self.warmth is not None:
            starter, extra = await self.warmth.starter()
            base |= extra
        environments = worker_environments(
            base,
            self.launch,
            self.identity,
            start,
            self._interface(start),
            Path(self._scratch.name),
        )
        script = [self.launch.script, *self.launch.args]
        try:
            self.group = await WorkerGroup.start(starter, script, environments, start.attempt, self.identity.node_rank)
        except OSError as error:
            raise RankzeroError(
                f"cannot start {' '.join(script)}: {error.strerror}", hint="check limits on processes and memory"
            ) from error
        self._watch = asyncio.create_task(self._watch_workers(self.group, writer))

    async def _watch_workers(self, group: WorkerGroup, writer: asyncio.StreamWriter) -> None:
        failure = await group.wait()
        if failure is None:
            await send(writer, WorkersDone(group.attempt))
            return
        self.last_failure = failure
        self.say(failure.summary)
        await send(writer, failure)

    async def _stop_workers(self, grace: float) -> None:
        if self._watch is not None:
            self._watch.cancel()  # what ends from now on ends because we stop it
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        group, self.group, self._watch = self.group, None, None
        if group is not None:
            await group.stop(grace)
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    async def _beat(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await send(writer, Heartbeat())
            if self.group is not None:  # while none is set one may be starting, and its ends are not ours to take
                reap_orphans(
                    {worker.pid for worker in self.group.workers} | (self.warmth.pids if self.warmth else set())
                )
            await asyncio.sleep(HEARTBEAT_EVERY)

    def _interface(self, start: Start) -> str:
        """Name of the interface towards rank 0; rank 0 takes the one that owns its own address."""
        address = start.master_address
        name = interface_of(address if self.identity.node_rank == 0 else source_address(address))
        if not name:
            self.say(f"no interface owns the address towards {address}; NCCL and gloo choose by themselves")
        return name
