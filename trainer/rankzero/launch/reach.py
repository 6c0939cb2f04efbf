"""Waiting for rank 0: DNS, then TCP, with a deadline and a reason for every second spent.

A wait container with nslookup answers only half of the question: the name resolves seconds before anything
listens. So the launcher itself asks, and says which link is missing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from rankzero.errors import Rank0UnreachableError
from rankzero.launch import protocol

CONNECT_TIMEOUT = 2.0
LOOKUP_TIMEOUT = 5.0
DNS_SILENT = "a NetworkPolicy that forbids DNS, or no cluster DNS"
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
SAY_AGAIN_EVERY = 15.0


class Unreachable(Exception):
    """One try failed; the message names the missing link."""


async def connect(
    host: str, port: int, *, timeout: float, say: Callable[[str], None]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to the coordinator, trying for up to ``timeout`` seconds.

    ``say`` is called with the reason of the wait when it changes and again every 15 s. Raises
    :class:`Rank0UnreachableError` at the deadline, with the last reason.
    """
    began = said_at = time.monotonic()
    said = ""
    pause = FIRST_PAUSE
    while True:
        try:
            return await _try(host, port)
        except Unreachable as reason:
            now = time.monotonic()
            if now - began >= timeout:
                raise Rank0UnreachableError(
                    f"rank 0 was not reached within {timeout:g} s: {reason}",
                    hint="look at the pod of node rank 0; launch.rank0Timeout sets how long to wait",
                ) from reason
            if str(reason) != said or now - said_at >= SAY_AGAIN_EVERY:
                said, said_at = str(reason), now
                say(f"waiting for rank 0 ({now - began:.0f} s of {timeout:g} s): {reason}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)


async def _try(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise Unreachable(f"DNS: no answer for {host} within {LOOKUP_TIMEOUT:g} s; {DNS_SILENT}") from None
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise Unreachable(f"DNS: the server does not answer for {host}; {DNS_SILENT}") from error
        raise Unreachable(
            f"DNS: {host} does not resolve yet ({error.strerror}); its pod has no address, or the headless Service "
            "does not select it or does not publish unready addresses"
        ) from error
    reasons = []
    for address in dict.fromkeys(str(entry[4][0]) for entry in found):
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await asyncio.open_connection(address, port, limit=protocol.MAX_LINE)
        except TimeoutError:
            reasons.append(f"{where} does not answer; a NetworkPolicy, or the address of a pod that is gone")
        except ConnectionRefusedError:
            reasons.append(f"{where} refuses; the pod is there, its launcher does not listen yet")
        except OSError as error:
            reasons.append(f"{where}: {error.strerror or error}")
    raise Unreachable(f"TCP: {host} resolves, {'; '.join(reasons)}")
