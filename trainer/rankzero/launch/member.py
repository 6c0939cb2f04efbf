"""One launcher's side of the group: join, run the workers that rank 0 asks for, report, leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.errors import StuckProcessError
from rankzero.launch import beats
from rankzero.launch.environment import common_environment
from rankzero.launch.gpus import Gpus
from rankzero.launch.identity import Identity
from rankzero.launch.joining import Joining
from rankzero.launch.local_attempt import LocalAttempt
from rankzero.launch.logs import Logs
from rankzero.launch.memory import Cgroup, KillCount
from rankzero.launch.processes import kill_strays, process_state, reap_strays
from rankzero.launch.protocol import (
    Dump,
    Dumped,
    Finish,
    Heartbeat,
    Leaving,
    Message,
    ProtocolError,
    Report,
    Save,
    Start,
    Stop,
    Stopped,
    WorkerFailed,
    WorkersDone,
    beat_every,
    receive,
    report_every,
    send,
)
from rankzero.launch.starters import Starter, start_plainly
from rankzero.launch.warm import Warmth

STOP_WITHIN = 3.0
"""Seconds for rank 0 to have the workers stopped, or to have begun with it, once the time for saving is over."""
LAST_SECONDS = 4.0
"""Of a pod's grace, for what comes after its workers: tasks are ended, the record, the end of the log."""
RECOVERING_BEATS = 4
"""Times launch.heartbeatTimeout that a group without an attempt counts as one that recovers: a minute by default.
A pod that is replaced where its image is present is back in a few seconds."""


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
        """True once this pod was part of the group, also while rank 0 is being replaced."""
        self.last_failure: WorkerFailed | None = None
        self.warmth: Warmth | None = None
        self._cgroup = cgroup
        self._joining = Joining(launch, identity, last_words, say)
        self._left = False
        """Set when a pod that is being stopped has done what its grace allows; its end ends what is left."""
        self._stuck: dict[int, str] = {}
        """Workers that do not end even by SIGKILL, by process id, each with a sentence."""
        self._logs = Logs(launch, identity.state_dir, say)
        self._gpus = Gpus(say)
        group = launch.nodes if identity.node_rank else 1  # node rank 0 talks to itself
        self._beat_every = beat_every(group, launch.heartbeat_timeout)
        self._report_every = report_every(group)
        self._attempt: LocalAttempt | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._changing = asyncio.Lock()
        """Held while workers are started or stopped: a stop that is under way is waited for, not repeated."""
        self._idle = asyncio.Event()
        """Set while there are no workers."""
        self._idle.set()
        self._idle_since = time.monotonic()
        """When the last workers here were gone or this pod was taken into the group, whichever came later."""

    async def run(self) -> Finish:
        """Join and work until the run has ended, joining again whenever rank 0 was lost.

        Raises :class:`Rank0UnreachableError` at the deadline or where rank 0 refuses this pod for good, and
        :class:`StuckProcessError` where a worker cannot be ended.
        """
        await asyncio.to_thread(beats.remove_leftovers, self.identity.pod_uid)
        remembering = asyncio.create_task(self._remember_gpus())
        if self.launch.method == "torchrun":
            self.say("launch.method is torchrun: it starts the workers, and the warm spare is not used")
        elif self.launch.command:
            self.say("launch.command is set: it is started plainly, and the warm spare is not used")
        elif self.launch.warm:
            self.warmth = Warmth(
                common_environment(os.environ, self.launch), self.launch.preload, self.launch.script, self.say
            )
            await self.warmth.open()
        try:
            while True:
                self.state = "waiting"
                reader, self._writer = await self._joining.join()
                self._idle_since = time.monotonic()
                self.state, self.joined = "joined", True
                finish = await self._session(reader, self._writer)
                if finish is not None:
                    self.state = finish.state
                    return finish
                self._leave_where_stuck()
                self.say("lost rank 0; workers are stopped, joining again")
        finally:
            remembering.cancel()
            await self._stop_workers(float(self.launch.stop_timeout))
            if self.warmth is not None:
                await self.warmth.close()

    @property
    def ready(self) -> bool:
        """Whether an eviction of this pod would disturb something: an attempt, or a group that is about to have one.

        Rank 0 cannot be asked where it is what is missing, so each pod goes by what it knows: it has joined, and has
        not been without workers for longer than a group needs to recover. A pod that is ahead of rank 0 in an upgrade
        is ready too: clusters that replace one pod after the other wait for that before they come to rank 0.
        Read from the status page's own thread.
        """
        if self._joining.awaits_upgrade:
            return True
        recovering = time.monotonic() - self._idle_since < RECOVERING_BEATS * self.launch.heartbeat_timeout
        return self.joined and (not self._idle.is_set() or recovering)

    @property
    def waiting_for(self) -> str:
        """Why this pod is not in the group; empty while it is."""
        return self._joining.waiting_for

    @property
    def attempt(self) -> int:
        """Number of the attempt whose workers run here; 0 without workers."""
        return self._attempt.number if self._attempt is not None else 0

    async def leave(self, reason: str) -> None:
        """This pod is being stopped: tell rank 0, and go when the whole group has saved and stopped.

        Without an answer from rank 0 the workers are stopped here when the time for saving is over. Leaves
        :data:`LAST_SECONDS` of the pod's grace.
        """
        self.state = "leaving"
        saving, stopping = self.launch.save_timeout, self.launch.stop_timeout
        with contextlib.suppress(TimeoutError):  # a start that hangs is ended with the task that it belongs to
            async with asyncio.timeout(saving + stopping + contract.LEAVE_MARGIN - LAST_SECONDS):
                if self._writer is not None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(saving + STOP_WITHIN):
                            await send(self._writer, Leaving(reason))
                            await self._idle.wait()
                await self._stop_workers(float(stopping))
        self._left = True

    # --- Working -----------------------------------------------------------------------------------------

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Finish | None:
        """Do what rank 0 says; the end of the run, or None where rank 0 is lost. Workers are gone afterwards."""
        beating = asyncio.create_task(self._keep_beating(writer))
        try:
            while (message := await self._next(reader)) is not None:
                if isinstance(message, Finish):
                    return message
                if isinstance(message, Start):
                    await self._start_workers(message, writer)
                elif isinstance(message, Save) and self._attempt is not None:
                    self._attempt.ask_to_save()
                elif isinstance(message, Dump) and self._attempt is not None:
                    await send(writer, Dumped(message.attempt, await self._attempt.dump()))
                elif isinstance(message, Stop):
                    self.say(f"stopping the workers of attempt {message.attempt}: {message.reason}")
                    report = await self._stop_workers(message.grace)
                    if report is not None:
                        await send(writer, report)
                    await send(writer, Stopped(message.attempt, "; ".join(self._stuck.values())))
                    self._leave_where_stuck()
            return None
        finally:
            beating.cancel()
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

    async def _start_workers(self, order: Start, writer: asyncio.StreamWriter) -> None:
        async with self._changing:
            self.state = "running"
            self._idle.clear()
            await self._gpus.wait_until_free()
            attempt = self._attempt = LocalAttempt(
                order, self.launch, self.identity, self._logs, KillCount(self._cgroup), self.say
            )
            starter: Starter = start_plainly
            base = {**os.environ, contract.ENV_CONFIG: self.config_path}
            if self.warmth is not None:
                starter, extra = await self.warmth.starter()
                base |= extra
            await attempt.start(starter, base, lambda failure: self._workers_ended(failure, attempt, writer))

    async def _remember_gpus(self) -> None:
        async with self._changing:  # no worker starts before, and nobody takes nvidia-smi for a stray
            await self._gpus.remember()

    async def _workers_ended(
        self, failure: WorkerFailed | None, attempt: LocalAttempt, writer: asyncio.StreamWriter
    ) -> None:
        await send(writer, attempt.report())
        if failure is None:
            await send(writer, WorkersDone(attempt.number))
            return
        self.last_failure = failure = attempt.explain(failure)
        await send(writer, failure)
        self.say(failure.summary)
        self._logs.show_end(failure)

    async def _stop_workers(self, grace: float) -> Report | None:
        """Returns what the ranks said last, where there were any."""
        if self._left:
            return None
        async with self._changing:
            left = await self._attempt.stop(grace) if self._attempt is not None else []
            left += await kill_strays(self._known_processes())
            ranks = self._attempt.ranks if self._attempt is not None else {}
            for pid in left:
                self._note_stuck(pid, ranks.get(pid))
            await self._logs.close()
            report = self._attempt.close() if self._attempt is not None else None
            self._attempt = None
            if not self._idle.is_set():
                self._idle_since = time.monotonic()
            self._idle.set()
            return report

    def _note_stuck(self, pid: int, rank: int | None) -> None:
        """A process does not end even by SIGKILL. ``rank`` is None for one that no rank runs in."""
        whose = f"process {pid}" + (f" of rank {rank}" if rank is not None else "")
        said = f"{whose} on node {self.identity.node_name} does not end even by SIGKILL (state {process_state(pid)})"
        if rank is None:
            self.say(f"{said}; going on beside it")
        else:
            self._stuck[pid] = said

    def _leave_where_stuck(self) -> None:
        """Nothing can be started beside a rank that holds its GPU and its files."""
        if self._stuck:
            raise StuckProcessError(
                "; ".join(self._stuck.values()),
                hint="it waits for a device or a mount: see `dmesg` and `cat /proc/PID/stack` on the node, and cordon "
                "and reboot it, so that the pod starts elsewhere",
            )

    async def _keep_beating(self, writer: asyncio.StreamWriter) -> None:
        reported = 0.0
        while True:
            if self._attempt is not None and time.monotonic() - reported >= self._report_every:
                reported = time.monotonic()
                await send(writer, self._attempt.report())
            else:
                await send(writer, Heartbeat())
            if not self._changing.locked():  # a process that is just being started is not known yet
                reap_strays(self._known_processes())
            await asyncio.sleep(self._beat_every)

    def _known_processes(self) -> set[int]:
        workers = self._attempt.pids if self._attempt is not None else set()
        return workers | (self.warmth.pids if self.warmth is not None else set()) | self._stuck.keys()
