"""Who is in the group: connections of members, their heartbeats, and which pod holds which node rank."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rankzero.config import LaunchConfig
from rankzero.launch import protocol
from rankzero.launch.code import Code
from rankzero.launch.protocol import (
    Finish,
    Heartbeat,
    Hello,
    Message,
    ProtocolError,
    Refused,
    Report,
    Welcome,
    receive,
    send,
    send_encoded,
)
from rankzero.launch.tally import Tally
from rankzero.launch.watchdog import PHASES

HELLO_TIMEOUT = 5.0
READ_WITHIN = 1.0
"""Seconds that an answer to a greeting waits for the script's folder: less than a member waits for the answer."""
BEAT_EVERY = 1.0
BEAT = protocol.encode(Heartbeat())
LOOK_EVERY = 0.25
"""Seconds between two looks for silent members: there may be hundreds of events a second, and of members."""
TELL_WITHIN = 2.0
"""Seconds for a member to take in what it was sent before, where its connection is full."""
MOST_UNGREETED = 256
"""Connections that have not said who they are."""
LONGEST_NAME = 63
"""Characters of a pod's name."""
BACKLOG = 1024
"""Connections that wait to be accepted: where the queue is full, the next one comes a second late."""


@dataclass(eq=False)
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
class Joined:
    """A member is here. ``restarted``: the same pod as before, whose container ended by itself meanwhile.

    Not after mere silence: a kernel that lives closes the connections of a process that ends, so it was the machine.
    ``returned``: the same launcher as before; it had lost rank 0, or the connection had broken.
    """

    peer: Peer
    restarted: bool
    returned: bool


@dataclass(frozen=True)
class Lost:
    """A member is not here any more. ``closed``: its kernel lives, which has closed the connection of its process."""

    peer: Peer
    reason: str
    closed: bool


@dataclass(frozen=True)
class Said:
    """A member said something."""

    peer: Peer
    message: Message


Event = Joined | Lost | Said


class Roster:
    """All members by node rank. Connections feed one queue; :meth:`next` alone changes who is here."""

    def __init__(self, launch: LaunchConfig, run_key: str, config_hash: str, say: Callable[[str], None]) -> None:
        self.peers: dict[int, Peer] = {}
        self._launch = launch
        self._run_key = run_key
        self._config_hash = config_hash
        self._code = Code(launch, say)
        self._dropped = Tally("connections dropped", say)
        self._refused = Tally("members refused", say)
        self._ungreeted: dict[asyncio.StreamWriter, None] = {}
        """In the order of their arrival."""
        self._farewell: Finish | None = None
        self._known: dict[int, Hello] = {}
        self._silent: set[int] = set()
        """The pod that last held each node rank, connected or not."""
        self._retired: set[str] = set()
        self._queue: asyncio.Queue[tuple[Peer, Message | None]] = asyncio.Queue()
        self._events: deque[Event] = deque()
        self._checked = time.monotonic()

    async def serve(self) -> asyncio.Server:
        """Listen on the rendezvous port, IPv4 and IPv6. Raises OSError where the port is taken."""
        self._code.begin()
        return await asyncio.start_server(
            self._connection, host=None, port=self._launch.rendezvous_port, limit=protocol.MAX_LINE, backlog=BACKLOG
        )

    async def next(self, timeout: float) -> Event | None:
        """The next thing that happened; None where nothing did within ``timeout`` seconds."""
        self._find_silent()
        self._dropped.tell()
        self._refused.tell()
        if not self._events:
            try:
                async with asyncio.timeout(timeout):
                    peer, message = await self._queue.get()
            except TimeoutError:
                return None
            self._take(peer, message)
        return self._events.popleft() if self._events else None

    async def tell_all(self, message: Message) -> None:
        """Send to every member that is here; one that does not read is not waited for, its silence is noticed."""
        await asyncio.gather(*(_tell(peer, message) for peer in self.peers.values()))

    async def dismiss(self, farewell: Finish) -> None:
        """Tell every member, and those who come later, that the run has ended."""
        self._farewell = farewell
        while not self._queue.empty():  # who joined while nobody asked for the next event
            self._take(*self._queue.get_nowait())
        await self.tell_all(farewell)

    async def see_off(self, within: float) -> None:
        """Wait until the members that were dismissed have gone, for ``within`` seconds at most.

        Where this process ended first, with words of theirs unread, its kernel would drop what they are still to hear.
        """
        deadline = time.monotonic() + within
        while self.peers and time.monotonic() < deadline:
            await self.next(0.1)

    def drop(self, peer: Peer, reason: str, *, closed: bool = False) -> None:
        """Close a member's connection, or note that it is ``closed`` already; it has to join again."""
        del self.peers[peer.rank]
        peer.writer.close()
        self._events.append(Lost(peer, reason, closed))

    def absent(self) -> list[int]:
        """Node ranks that are not here or are leaving."""
        here = {peer.rank for peer in list(self.peers.values()) if not peer.leaving}
        return [rank for rank in range(self._launch.nodes) if rank not in here]

    # --- Connections: they only feed the queue -----------------------------------------------------------

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: Peer | None = None
        try:
            hello = await self._greeting(reader, writer)
            if hello is None:
                return  # a probe that only asked whether the port is open
            peer = await self._admit(hello, writer)
            if peer is None:
                return
            while (message := await receive(reader)) is not None:
                peer.seen = time.monotonic()
                if isinstance(message, Report):
                    self._check(message, peer)
                if isinstance(message, Heartbeat | Report):
                    await send_encoded(writer, BEAT)  # an answer, not a timer for each of hundreds of members
                if not isinstance(message, Heartbeat):
                    self._queue.put_nowait((peer, message))
        except (ProtocolError, TimeoutError) as error:
            self._dropped.note(f"dropped a connection from {_address(writer)}: {str(error) or 'no greeting'}")
        except asyncio.CancelledError:
            return  # the loop is closing; asyncio 3.11 would report a cancelled connection as an error
        finally:
            if peer is not None:
                self._queue.put_nowait((peer, None))
            writer.close()

    async def _greeting(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
        """The first message of a connection; strangers that say nothing do not keep members out."""
        if len(self._ungreeted) >= MOST_UNGREETED:  # a member greets at once: who waits longest is none
            oldest = next(iter(self._ungreeted))
            del self._ungreeted[oldest]
            self._dropped.note(f"dropped a connection from {_address(oldest)}: no greeting, and many others came")
            oldest.transport.abort()
        self._ungreeted[writer] = None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                return await protocol.receive_greeting(reader)
        finally:
            self._ungreeted.pop(writer, None)

    async def _admit(self, hello: Message, writer: asyncio.StreamWriter) -> Peer | None:
        if not isinstance(hello, Hello):
            raise ProtocolError(f"expected Hello, got {type(hello).__name__}")
        refusal = self._refusal(hello, await self._code.fingerprint(READ_WITHIN))
        if refusal:
            self._refused.note(f"refused {hello.pod_name[:LONGEST_NAME]}: {refusal.reason}")
            await send(writer, refusal)
            return None
        await send(writer, Welcome(nodes=self._launch.nodes))
        if self._farewell is not None:  # it missed the end
            await send(writer, self._farewell)
            return None
        peer = Peer(hello, writer)
        self._queue.put_nowait((peer, hello))
        return peer

    def _refusal(self, hello: Hello, code: str) -> Refused | None:
        if hello.version != protocol.VERSION:
            return Refused(f"it speaks protocol {hello.version}, rank 0 speaks {protocol.VERSION}: two images", False)
        if hello.run != self._run_key:
            return Refused("it belongs to another run", True)
        if hello.pod_uid in self._retired:
            return Refused(f"another pod has taken over node rank {hello.node_rank}", True)
        if hello.config_hash != self._config_hash:
            return Refused("its settings differ from those of rank 0: an upgrade is under way", False)
        if code and hello.code and hello.code != code:
            where = self._code.folder
            return Refused(f"its code in {where} differs from that of rank 0: bring both up to date", False)
        if not 0 <= hello.node_rank < self._launch.nodes:
            return Refused(f"node rank {hello.node_rank} in a group of {self._launch.nodes}", True)
        return None

    def _check(self, report: Report, peer: Peer) -> None:
        """A member speaks of its own ranks. Raises ProtocolError."""
        first = peer.rank * self._launch.procs_per_node
        own = range(first, first + self._launch.procs_per_node)
        if any(beat.rank not in own or beat.phase not in PHASES for beat in report.ranks):
            raise ProtocolError(f"{peer.name} reports ranks or phases that it cannot have")
        if report.lead and (0 not in own or len(report.lead) > 1):
            raise ProtocolError(f"{peer.name} reports as if it had rank 0")

    # --- What becomes of it ------------------------------------------------------------------------------

    def _take(self, peer: Peer, message: Message | None) -> None:
        if isinstance(message, Hello):
            self._join(peer)
        elif self.peers.get(peer.rank) is not peer:
            return  # the last words of a connection that was replaced or dropped
        elif message is None:
            self.drop(peer, f"{peer.name} closed its connection", closed=True)
        else:
            self._events.append(Said(peer, message))

    def _join(self, peer: Peer) -> None:
        hello, before = peer.hello, self._known.get(peer.rank)
        if hello.pod_uid in self._retired:  # its successor was quicker through the queue
            peer.writer.close()
            return
        same_pod = before is not None and before.pod_uid == hello.pod_uid
        if before is not None and not same_pod:
            self._retired.add(before.pod_uid)
        if (present := self.peers.get(peer.rank)) is not None:
            self.drop(present, f"{present.name} {'started again' if same_pod else 'was replaced by a new pod'}")
        self._known[peer.rank] = hello
        self.peers[peer.rank] = peer
        restarted = before is not None and same_pod and before.boot != hello.boot and peer.rank not in self._silent
        self._silent.discard(peer.rank)
        self._events.append(Joined(peer, restarted, same_pod and before is not None and before.boot == hello.boot))

    def _find_silent(self) -> None:
        """Drop members without heartbeat, unless it was this process that did not get to read them."""
        now = time.monotonic()
        if now - self._checked < LOOK_EVERY:
            return
        late = max(0.0, now - self._checked - BEAT_EVERY - 0.5)
        self._checked = now
        for peer in list(self.peers.values()):
            peer.seen = min(peer.seen + late, now)
            if now - peer.seen > self._launch.heartbeat_timeout:
                self._silent.add(peer.rank)
                self.drop(peer, f"{peer.name} sent no heartbeat for {self._launch.heartbeat_timeout} s")


async def _tell(peer: Peer, message: Message) -> None:
    with contextlib.suppress(TimeoutError):  # it lies in the connection's buffer
        async with asyncio.timeout(TELL_WITHIN):
            await send(peer.writer, message)


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return f"{peer[0]} port {peer[1]}" if peer else "somebody who has gone"
