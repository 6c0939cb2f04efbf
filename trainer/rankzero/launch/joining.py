"""Becoming part of the group: reach rank 0, say who this pod is, be taken in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rankzero.config import LaunchConfig
from rankzero.errors import Rank0UnreachableError
from rankzero.launch import protocol, reach
from rankzero.launch.code import Code
from rankzero.launch.identity import Identity
from rankzero.launch.protocol import Hello, ProtocolError, Refused, Welcome, receive, send

READ_WITHIN = 5.0
"""Seconds for the script's folder; a file server that is away keeps nobody from joining."""


class Joining:
    """Used by every node rank, rank 0 included. ``last_words`` are those of the launcher before this one."""

    def __init__(self, launch: LaunchConfig, identity: Identity, last_words: str, say: Callable[[str], None]) -> None:
        self._launch = launch
        self._identity = identity
        self._last_words = last_words
        self._say = say
        self._code = Code(launch, say)
        self.waiting_for = "has not tried to reach rank 0 yet"
        """Why this pod is not in the group; empty while it is."""
        self.awaits_upgrade = False
        """True while rank 0 is of another version of the release: this pod waits for rank 0's own successor."""

    async def join(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which rank 0 has taken this pod in.

        Raises :class:`Rank0UnreachableError` at the deadline or where rank 0 refuses this pod for good.
        """
        # Rank 0 talks to itself: no name, no Service, no policy in between.
        host = self._identity.pod_ip if self._identity.node_rank == 0 else self._identity.rank0_host
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._launch.rank0_timeout
        while True:
            code = await self._code.fingerprint(READ_WITHIN)  # first: rank 0 waits for no greeting that takes long
            left = max(0.0, deadline - clock())
            reader, writer = await reach.connect(host, self._launch.rendezvous_port, timeout=left, say=self._waiting)
            reason = await self._greet(reader, writer, host, code)
            if not reason:
                self.waiting_for, self.awaits_upgrade = "", False
                return reader, writer
            writer.close()
            if clock() >= deadline:
                raise Rank0UnreachableError(
                    f"rank 0 did not take this pod in within {self._launch.rank0_timeout} s: {reason}",
                    hint="look at the log of node rank 0",
                )
            if reason != self.waiting_for:
                self._waiting(reason)
            await asyncio.sleep(reach.LONGEST_PAUSE)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, code: str) -> str:
        """Introduce this pod; why it is not taken in now, empty where it is. Raises where it never will be."""
        me = self._identity
        hello = Hello(
            version=protocol.VERSION,
            run=me.run_key,
            node_rank=me.node_rank,
            pod_name=me.pod_name,
            pod_uid=me.pod_uid,
            boot=me.boot,
            node_name=me.node_name,
            config_hash=me.config_hash,
            code=code,
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
                f"{host}:{self._launch.rendezvous_port} is not a rankzero coordinator: {error}",
                hint="another program listens on this port of the pod or, with the host network, of the node",
            ) from error
        if isinstance(answer, Welcome):
            self._say(f"joined the group of {answer.nodes} as node rank {me.node_rank}")
            return ""
        if isinstance(answer, Refused):
            if answer.final:
                raise Rank0UnreachableError(
                    f"rank 0 refused this pod: {answer.reason}", hint="look for a second release or an old pod"
                )
            self.awaits_upgrade = True
            return f"rank 0 does not take this pod in: {answer.reason}"
        return "rank 0 closed the connection"

    def _waiting(self, reason: str) -> None:
        self.waiting_for = reason
        self._say(reason)
