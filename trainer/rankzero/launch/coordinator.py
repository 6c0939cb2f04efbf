"""The group: a small server on node rank 0 that every launcher joins.

It opens attempts (a fixed world, a fresh port for torch's store), ends them everywhere when they end in one
place, and decides whether another one is worth it. All state changes happen in one task that reads one queue;
connections only feed it, and the state volume is only touched from threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch import budget, causes, protocol
from rankzero.launch.causes import POD, STOPPED, WORKER, Cause
from rankzero.launch.ports import free_port
from rankzero.launch.protocol import (
    Finish,
    Heartbeat,
    Hello,
    Leaving,
    Message,
    ProtocolError,
    Refused,
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
from rankzero.launch.records import Records

T = TypeVar("T")

HELLO_TIMEOUT = 5.0
BEAT_EVERY = 1.0
STOP_MARGIN = 10.0
"""Seconds beyond the workers' own grace after which a member that does not answer a Stop is dropped."""
VOLUME_WITHIN = 30.0
"""Seconds for one read or write of a record; a volume that takes longer is done without."""


@dataclass
class Peer:
    """A member's connection. ``seen`` is monotonic time of its last message."""

    hello: Hello
    writer: asyncio.StreamWriter
    seen: float = field(default_factory=time.monotonic)
    leaving: bool = False

    @property
    def rank(self) -> int:
        """Node rank."""
        return self.hello.node_rank

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.hello.pod_name} (node rank {self.rank})"


@dataclass(frozen=True)
class Outcome:
    """How the run ended."""

    state: str
    reason: str
    exit_code: int


class Coordinator:
    """Runs on node rank 0 only. ``say`` prints a line for a person."""

    def __init__(
        self,
        launch: LaunchConfig,
        *,
        run_key: str,
        config_hash: str,
        master_address: str,
        records: Records,
        say: Callable[[str], None],
    ) -> None:
        self.launch = launch
        self.run_key = run_key
        self.config_hash = config_hash
        self.master_address = master_address
        self.records = records
        self.say = say
        self.peers: dict[int, Peer] = {}
        self.attempt = 0
        self.state = "waiting"
        self.ended: Outcome | None = None
        self._known: dict[int, Hello] = {}
        """The pod that last held each node rank, connected or not."""
        self._retired: set[str] = set()
        self._queue: asyncio.Queue[tuple[Peer, Message | None]] = asyncio.Queue()
        self._causes: list[Cause] = []
        self._checked = time.monotonic()

    # --- Connections: they only feed the queue -----------------------------------------------------------

    async def serve(self) -> asyncio.Server:
        """Listen on the rendezvous port, IPv4 and IPv6. Raises OSError where the port is taken."""
        return await asyncio.start_server(
            self._connection, host=None, port=self.launch.rendezvous_port, limit=protocol.MAX_LINE
        )

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: Peer | None = None
        beats: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                hello = await receive(reader)
            if hello is None:
                return  # a probe that only asked whether the port is open
            peer = await self._admit(hello, writer)
            if peer is None:
                return
            beats = asyncio.create_task(_beat(writer))
            while (message := await receive(reader)) is not None:
                peer.seen = time.monotonic()
                if not isinstance(message, Heartbeat):
                    self._queue.put_nowait((peer, message))
        except (ProtocolError, TimeoutError) as error:
            where = writer.get_extra_info("peername")
            self.say(f"dropped a connection from {where}: {str(error) or 'no greeting'}")
        except asyncio.CancelledError:
            return  # the loop is closing; asyncio 3.11 would report a cancelled connection as an error
        finally:
            if beats is not None:
                beats.cancel()
            if peer is not None:
                self._queue.put_nowait((peer, None))
            writer.close()

    async def _admit(self, hello: Message, writer: asyncio.StreamWriter) -> Peer | None:
        if not isinstance(hello, Hello):
            raise ProtocolError(f"expected Hello, got {type(hello).__name__}")
        refusal = self._refusal(hello)
        if refusal:
            self.say(f"refused {hello.pod_name}: {refusal.reason}")
            await send(writer, refusal)
            return None
        await send(writer, Welcome(nodes=self.launch.nodes))
        if self.ended is not None:  # it missed the end
            await send(writer, _finish(self.ended))
            return None
        peer = Peer(hello, writer)
        self._queue.put_nowait((peer, hello))
        return peer

    def _refusal(self, hello: Hello) -> Refused | None:
        if hello.version != protocol.VERSION:
            return Refused(f"it speaks protocol {hello.version}, rank 0 speaks {protocol.VERSION}: two images", False)
        if hello.run != self.run_key:
            return Refused("it belongs to another run", True)
        if hello.pod_uid in self._retired:
            return Refused(f"another pod has taken over node rank {hello.node_rank}", True)
        if hello.config_hash != self.config_hash:
            return Refused("its settings differ from those of rank 0: an upgrade is under way", False)
        if not 0 <= hello.node_rank < self.launch.nodes:
            return Refused(f"node rank {hello.node_rank} in a group of {self.launch.nodes}", True)
        return None

    # --- The run -----------------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Open attempts until the run has ended. Cancelled when this pod leaves."""
        progress = await self._progress()
        if self.records.close_lost(progress):
            await self._volume(self.records.save, None)
            if reason := budget.give_up(self.records.attempts, self.launch.attempts_without_progress):
                return Outcome("failed", reason, contract.EXIT_INTERNAL)
        while True:
            self.state = "waiting"
            if missing := await self._gather():
                return Outcome("failed", missing, contract.EXIT_RANK0_UNREACHABLE)
            if reason := self._budget():
                return Outcome("failed", reason, contract.EXIT_INTERNAL)
            cause = await self._run_attempt()
            if cause is None:
                return Outcome("succeeded", "every worker ended with status 0", contract.EXIT_OK)
            if reason := self._budget():
                code = cause.failure.exit_code if cause.failure else contract.EXIT_INTERNAL
                return Outcome("failed", reason, code)

    async def announce(self, outcome: Outcome) -> None:
        """Tell every member, and those who come later, how the run ended."""
        self.state, self.ended = outcome.state, outcome
        for peer in list(self.peers.values()):
            await send(peer.writer, _finish(outcome))

    async def close_interrupted(self) -> None:
        """This pod leaves: end the open attempt's record."""
        if self.state in {"running", "restarting"}:
            cause = causes.first(self._causes) if self._causes else Cause(STOPPED, "rank 0 is leaving", 0)
            await self._close_attempt(cause)

    def absent(self) -> list[int]:
        """Node ranks that are not here."""
        here = {peer.rank for peer in list(self.peers.values()) if not peer.leaving}
        return [rank for rank in range(self.launch.nodes) if rank not in here]

    async def _gather(self) -> str:
        """Wait until every node rank is here; returns why not at the deadline, else an empty text."""
        deadline = time.monotonic() + self.launch.rank0_timeout
        said = ""
        while absent := self.absent():
            now = f"waiting for node rank {', '.join(map(str, absent))} ({len(self.peers)} of {self.launch.nodes} here)"
            if now != said:
                said = now
                self.say(now)
            left = deadline - time.monotonic()
            if left <= 0:
                return f"node rank {', '.join(map(str, absent))} did not join within {self.launch.rank0_timeout} s"
            await self._handle_next(min(left, 1.0))
        return ""

    async def _run_attempt(self) -> Cause | None:
        """One attempt from Start to the last Stopped; None where every worker ended with status 0."""
        self._causes = []
        members = sorted(self.peers.values(), key=lambda peer: peer.rank)
        self.attempt = self.records.open_attempt([_describe(peer) for peer in members])
        self.state = "running"
        await self._volume(self.records.save, None)
        start = Start(self.attempt, self.master_address, free_port())
        self.say(f"attempt {self.attempt}: {self.launch.nodes} x {self.launch.procs_per_node} processes")
        for peer in members:
            await send(peer.writer, start)
        done: set[int] = set()
        while len(done) < self.launch.nodes and not self._causes:
            handled = await self._handle_next(1.0)
            if handled and isinstance(handled[1], WorkersDone):
                done.add(handled[0].rank)
        if not self._causes:
            await self._close_attempt(None)
            return None
        self.state = "restarting"
        if self._causes[0].kind == STOPPED:
            await self._save_everywhere()
        await self._stop_everywhere(self._causes[0].reason)
        cause = causes.first(self._causes)
        self.say(f"attempt {self.attempt} ended: {cause.reason}")
        await self._close_attempt(cause)
        return cause

    async def _close_attempt(self, cause: Cause | None) -> None:
        self.records.close_attempt(cause, await self._progress())
        await self._volume(self.records.save, None)

    async def _save_everywhere(self) -> None:
        """A pod is being stopped: let all ranks save at one step and leave, where the script can do that."""
        progress = await self._progress()
        if not (self.launch.save_timeout and progress.get("saves_on_stop") and progress["attempt"] == self.attempt):
            return
        for peer in list(self.peers.values()):
            await send(peer.writer, Save(self.attempt))
        working = set(self.peers)
        deadline = time.monotonic() + self.launch.save_timeout
        while working and time.monotonic() < deadline:
            handled = await self._handle_next(0.5)
            if handled and isinstance(handled[1], WorkersDone | WorkerFailed):
                working.discard(handled[0].rank)
            working &= set(self.peers)
        if working:
            self.say(f"not all ranks saved within launch.saveTimeout, {self.launch.save_timeout} s")

    async def _stop_everywhere(self, reason: str) -> None:
        """Stop all workers; returns when every member has none left or is gone."""
        order = Stop(self.attempt, reason, float(self.launch.stop_timeout))
        for peer in list(self.peers.values()):
            await send(peer.writer, order)
        waiting = set(self.peers)
        deadline = time.monotonic() + self.launch.stop_timeout + STOP_MARGIN
        while waiting and time.monotonic() < deadline:
            handled = await self._handle_next(0.5)
            if handled and isinstance(handled[1], Stopped):
                waiting.discard(handled[0].rank)
            waiting &= set(self.peers)
        for rank in waiting:
            peer = self.peers[rank]
            self._drop(peer, f"{peer.name} did not stop its workers in time")

    # --- Events ------------------------------------------------------------------------------------------

    async def _handle_next(self, timeout: float) -> tuple[Peer, Message] | None:
        """Take one event from the queue, keep ``peers`` and the attempt's causes true, and return it."""
        self._drop_silent()
        try:
            async with asyncio.timeout(timeout):
                peer, message = await self._queue.get()
        except TimeoutError:
            return None
        if isinstance(message, Hello):
            await self._joined(peer)
            return None
        if self.peers.get(peer.rank) is not peer:
            return None  # the last words of a connection that was replaced or dropped
        if message is None:
            self._lost(peer)
            return None
        if isinstance(message, Leaving):
            peer.leaving = True
            self._note(Cause(STOPPED, f"{peer.name} is leaving: {message.reason}", peer.rank))
        elif getattr(message, "attempt", self.attempt) != self.attempt:
            return None
        elif isinstance(message, WorkerFailed):
            self._note(Cause(WORKER, message.summary, peer.rank, message))
        return peer, message

    async def _joined(self, peer: Peer) -> None:
        hello, before = peer.hello, self._known.get(peer.rank)
        if hello.pod_uid in self._retired:  # its successor was quicker through the queue
            peer.writer.close()
            return
        if before is not None and before.pod_uid != hello.pod_uid:
            self._retired.add(before.pod_uid)
        if (present := self.peers.get(peer.rank)) is not None:
            same = before is not None and before.pod_uid == hello.pod_uid
            self._drop(present, f"{present.name} {'started again' if same else 'was replaced by a new pod'}")
        self._known[peer.rank] = hello
        self.peers[peer.rank] = peer
        self.say(f"{hello.pod_name} joined as node rank {peer.rank} from node {hello.node_name}")
        restarted = before is not None and before.pod_uid == hello.pod_uid and before.boot != hello.boot
        if restarted and self.state == "waiting" and self.records.blame_container(peer.rank):
            await self._volume(self.records.save, None)

    def _lost(self, peer: Peer) -> None:
        del self.peers[peer.rank]
        if not peer.leaving:
            self._note(Cause(POD, f"{peer.name} closed its connection", peer.rank, at=peer.seen))

    def _drop_silent(self) -> None:
        """Drop members without heartbeat, unless it was this process that did not get to read them."""
        now = time.monotonic()
        late = max(0.0, now - self._checked - BEAT_EVERY - 0.5)
        self._checked = now
        for peer in list(self.peers.values()):
            peer.seen = min(peer.seen + late, now)
            if now - peer.seen > self.launch.heartbeat_timeout:
                self._drop(peer, f"{peer.name} sent no heartbeat for {self.launch.heartbeat_timeout} s")

    def _drop(self, peer: Peer, why: str) -> None:
        self.peers.pop(peer.rank, None)
        peer.writer.close()
        self._note(Cause(POD, why, peer.rank, at=peer.seen))

    def _note(self, cause: Cause) -> None:
        if self.state in {"running", "restarting"}:
            self._causes.append(cause)
        else:
            self.say(cause.reason)

    # --- Helpers -----------------------------------------------------------------------------------------

    def _budget(self) -> str:
        return budget.give_up(self.records.attempts, self.launch.attempts_without_progress)

    async def _progress(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {}
        return await self._volume(self.records.progress, nothing)

    async def _volume(self, action: Callable[[], T], otherwise: T) -> T:
        """Do something with the state volume in a thread; ``otherwise`` where it fails or takes too long."""
        try:
            async with asyncio.timeout(VOLUME_WITHIN):
                return await asyncio.to_thread(action)
        except TimeoutError:
            self.say(f"the checkpoint volume did not answer within {VOLUME_WITHIN:g} s; going on without the record")
        except OSError as error:
            self.say(f"the checkpoint volume: {error.strerror or error}; going on without the record")
        return otherwise


async def _beat(writer: asyncio.StreamWriter) -> None:
    while True:
        await send(writer, Heartbeat())
        await asyncio.sleep(BEAT_EVERY)


def _finish(outcome: Outcome) -> Finish:
    return Finish(outcome.state, outcome.reason, outcome.exit_code)


def _describe(peer: Peer) -> dict[str, Any]:
    hello = peer.hello
    return {"node_rank": peer.rank, "pod": hello.pod_name, "uid": hello.pod_uid, "node": hello.node_name}
