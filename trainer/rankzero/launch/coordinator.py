"""The group: a small server on node rank 0 that every launcher joins.

It opens attempts (a fixed world, a fresh port for torch's store), ends them everywhere when they end in one
place, and decides whether another one is worth it. All state changes happen in one task that reads one queue;
connections only feed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch import protocol
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
from rankzero.launch.records import Records

HELLO_TIMEOUT = 5.0
STOP_MARGIN = 10.0
"""Seconds beyond the workers' own grace after which a member that does not answer a Stop is dropped."""
NOT_RETRIED = {contract.EXIT_USAGE}
"""Exit codes of a worker that say: the same again cannot help."""


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


@dataclass(frozen=True)
class Cause:
    """Why an attempt ended. ``kind`` is worker (the script) or pod (its surroundings)."""

    kind: str
    reason: str
    failure: WorkerFailed | None = None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Outcome:
    """How the run ended."""

    state: str
    reason: str
    exit_code: int


class Coordinator:
    """Runs on node rank 0 only. ``say`` prints a line for a person."""

    def __init__(
        self, launch: LaunchConfig, run_key: str, master_address: str, records: Records, say: Callable[[str], None]
    ) -> None:
        self.launch = launch
        self.run_key = run_key
        self.master_address = master_address
        self.records = records
        self.say = say
        self.peers: dict[int, Peer] = {}
        self.attempt = 0
        self.state = "waiting"
        self._retired: set[str] = set()
        self._queue: asyncio.Queue[tuple[Peer, Message | None]] = asyncio.Queue()
        self._attempt_causes: list[Cause] = []
        self._best_step = max((record.get("last_step", 0) for record in records.attempts()), default=0)
        self._without_progress = 0

    # --- Connections: they only feed the queue -----------------------------------------------------------

    async def serve(self) -> asyncio.Server:
        """Listen on the rendezvous port, IPv4 and IPv6. Raises OSError where the port is taken."""
        return await asyncio.start_server(
            self._connection, host=None, port=self.launch.rendezvous_port, limit=protocol.MAX_LINE
        )

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = writer.get_extra_info("peername")
        try:
            hello = await asyncio.wait_for(receive(reader), HELLO_TIMEOUT)
            if hello is None:
                return  # a probe that only asked whether the port is open
            peer = await self._admit(hello, writer)
            if peer is None:
                return
            while (message := await receive(reader)) is not None:
                peer.seen = time.monotonic()
                if not isinstance(message, Heartbeat):
                    await self._queue.put((peer, message))
            await self._queue.put((peer, None))
        except (ProtocolError, TimeoutError) as error:
            self.say(f"dropped a connection from {where}: {str(error) or 'no greeting'}")
            if (found := next((p for p in self.peers.values() if p.writer is writer), None)) is not None:
                await self._queue.put((found, None))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _admit(self, hello: Message, writer: asyncio.StreamWriter) -> Peer | None:
        if not isinstance(hello, Hello):
            raise ProtocolError(f"expected Hello, got {type(hello).__name__}")
        refusal = self._refusal(hello)
        if refusal:
            self.say(f"refused {hello.pod_name}: {refusal.reason}")
            await send(writer, refusal)
            return None
        peer = Peer(hello, writer)
        await send(writer, Welcome(nodes=self.launch.nodes))
        await self._queue.put((peer, hello))
        return peer

    def _refusal(self, hello: Hello) -> Refused | None:
        if hello.version != protocol.VERSION:
            return Refused(f"it speaks protocol {hello.version}, rank 0 speaks {protocol.VERSION}: two images", True)
        if hello.run != self.run_key:
            return Refused(f"it belongs to run {hello.run}, this is {self.run_key}", True)
        if not 0 <= hello.node_rank < self.launch.nodes:
            return Refused(f"node rank {hello.node_rank} in a group of {self.launch.nodes}", True)
        if hello.pod_uid in self._retired:
            return Refused(f"another pod has taken over node rank {hello.node_rank}", True)
        return None

    # --- The run -----------------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Open attempts until the run has ended. Cancelled when this pod leaves."""
        try:
            outcome = await self._attempts()
        except asyncio.CancelledError:
            self._close_interrupted()
            raise
        self.state = outcome.state
        return outcome

    async def announce(self, outcome: Outcome) -> None:
        """Tell every member how the run ended."""
        for peer in self.peers.values():
            await send(peer.writer, Finish(outcome.state, outcome.reason, outcome.exit_code))

    async def _attempts(self) -> Outcome:
        while True:
            self.state = "waiting"
            missing = await self._gather()
            if missing:
                return Outcome("failed", missing, contract.EXIT_RANK0_UNREACHABLE)
            cause = await self._run_attempt()
            if cause is None:
                return Outcome("succeeded", "every worker ended with status 0", contract.EXIT_OK)
            if (reason := self._give_up(cause)) is not None:
                code = cause.failure.exit_code if cause.failure else contract.EXIT_INTERNAL
                return Outcome("failed", reason, code)

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
        self._attempt_causes = []
        nodes = [
            {"node_rank": p.rank, "pod": p.hello.pod_name, "uid": p.hello.pod_uid, "node": p.hello.node_name}
            for p in sorted(self.peers.values(), key=lambda p: p.rank)
        ]
        self.attempt = self.records.open_attempt(nodes)
        self.state = "running"
        start = Start(self.attempt, self.master_address, free_port())
        self.say(f"attempt {self.attempt}: {self.launch.nodes} x {self.launch.procs_per_node} processes")
        for peer in self.peers.values():
            await send(peer.writer, start)
        done: set[int] = set()
        while len(done) < self.launch.nodes and not self._attempt_causes:
            finished = await self._handle_next(1.0)
            if isinstance(finished, tuple) and isinstance(finished[1], WorkersDone):
                done.add(finished[0].rank)
        cause = None
        if self._attempt_causes:
            self.state = "restarting"
            await self._stop_everywhere(self._attempt_causes[0].reason)
            cause = _root_cause(self._attempt_causes)
            self.say(f"attempt {self.attempt} ended: {cause.reason}")
        self._count(self.records.close_attempt(self.attempt, cause=cause.record() if cause else None), cause)
        return cause

    async def _stop_everywhere(self, reason: str) -> None:
        """Stop all workers; returns when every member has none left or is gone."""
        order = Stop(self.attempt, reason, float(self.launch.stop_timeout))
        for peer in self.peers.values():
            await send(peer.writer, order)
        waiting = set(self.peers)
        deadline = time.monotonic() + self.launch.stop_timeout + STOP_MARGIN
        while waiting and time.monotonic() < deadline:
            handled = await self._handle_next(0.5)
            if isinstance(handled, tuple) and isinstance(handled[1], Stopped):
                waiting.discard(handled[0].rank)
            waiting &= set(self.peers)
        for rank in waiting:  # not a cause of its own: the attempt had ended before
            self.say(f"{self.peers[rank].hello.pod_name} did not stop its workers in time; it has to join again")
            self._drop(self.peers[rank])

    async def _handle_next(self, timeout: float) -> tuple[Peer, Message] | None:
        """Take one event from the queue, keep ``peers`` and the attempt's causes true, and return it."""
        self._drop_silent()
        try:
            peer, message = await asyncio.wait_for(self._queue.get(), timeout)
        except TimeoutError:
            return None
        current = self.peers.get(peer.rank)
        if isinstance(message, Hello):
            if current is not None:
                self._replace(current, peer)
            self.peers[peer.rank] = peer
            self.say(f"{peer.hello.pod_name} joined as node rank {peer.rank} from node {peer.hello.node_name}")
            return None
        if current is not peer:
            return None  # the last words of a connection that was replaced
        if message is None:
            del self.peers[peer.rank]
            if not peer.leaving:
                self._note(Cause("pod", f"{peer.hello.pod_name} (node rank {peer.rank}) closed its connection"))
            return None
        if isinstance(message, Leaving):
            peer.leaving = True
            self._note(Cause("pod", f"{peer.hello.pod_name} (node rank {peer.rank}) is leaving: {message.reason}"))
        elif isinstance(message, WorkerFailed) and message.attempt == self.attempt:
            self._note(Cause("worker", message.summary, message))
        if getattr(message, "attempt", self.attempt) != self.attempt:
            return None
        return peer, message

    def _replace(self, old: Peer, new: Peer) -> None:
        if old.hello.pod_uid != new.hello.pod_uid:
            self._retired.add(old.hello.pod_uid)
        self._drop(old)
        same = "started again" if old.hello.pod_uid == new.hello.pod_uid else "was replaced by a new pod"
        self._note(Cause("pod", f"{old.hello.pod_name} (node rank {old.rank}) {same}"))

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for peer in list(self.peers.values()):
            if now - peer.seen > self.launch.heartbeat_timeout:
                self._drop(peer)
                silence = f"sent no heartbeat for {self.launch.heartbeat_timeout} s"
                self._note(Cause("pod", f"{peer.hello.pod_name} (node rank {peer.rank}) {silence}"))

    def _drop(self, peer: Peer) -> None:
        self.peers.pop(peer.rank, None)
        peer.writer.close()

    def _note(self, cause: Cause) -> None:
        if self.state in {"running", "restarting"}:
            self._attempt_causes.append(cause)
        else:
            self.say(cause.reason)

    # --- Is another attempt worth it? --------------------------------------------------------------------

    def _count(self, record: dict[str, Any], cause: Cause | None) -> None:
        step = record.get("last_step", 0)
        if step > self._best_step:
            self._best_step, self._without_progress = step, 0
        elif cause is not None and cause.kind == "worker":
            self._without_progress += 1

    def _give_up(self, cause: Cause) -> str | None:
        """Why the run should end now; None where another attempt is worth it."""
        if cause.failure is not None and cause.failure.exit_code in NOT_RETRIED:
            return f"{cause.reason} (this status is not retried)"
        if self._without_progress >= self.launch.attempts_without_progress:
            return f"{self._without_progress} attempts in a row gained no step; the last: {cause.reason}"
        return None

    def _close_interrupted(self) -> None:
        if self.state in {"running", "restarting"}:
            cause = _root_cause(self._attempt_causes) if self._attempt_causes else Cause("pod", "rank 0 is leaving")
            self.records.close_attempt(self.attempt, cause=cause.record())

    def absent(self) -> list[int]:
        """Node ranks that are not here."""
        here = {peer.rank for peer in self.peers.values() if not peer.leaving}
        return [rank for rank in range(self.launch.nodes) if rank not in here]


def _root_cause(causes: list[Cause]) -> Cause:
    """The first thing that went wrong.

    A lost or leaving pod explains the workers that then lost their peer. Among workers the earliest end counts:
    the others followed it.
    """
    pods = [cause for cause in causes if cause.kind == "pod"]
    if pods:
        return pods[0]
    return min(causes, key=lambda cause: cause.failure.time if cause.failure else 0.0)


def free_port() -> int:
    """A port that is free on this pod now, for torch's store of one attempt."""
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])
