"""The roster's connections, as members at the other end see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from rankzero.config import LaunchConfig
from rankzero.launch import protocol, roster
from rankzero.launch.ports import free_port
from rankzero.launch.protocol import VERSION, Finish, Hello, Stop, receive, send
from rankzero.launch.roster import Roster
from tests.waiting import PATIENCE

T = TypeVar("T")


async def join(group: Roster, port: int, rank: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=protocol.MAX_LINE)
    await send(writer, Hello(VERSION, "run", rank, f"pod-{rank}", f"uid-{rank}", "boot", "node", "hash", "", ""))
    while rank not in group.peers:
        await group.next(0.1)
    return reader, writer


async def finish_heard(reader: asyncio.StreamReader) -> bool:
    """Read on to the end of the run; False where the connection ends before it."""
    while (message := await receive(reader)) is not None:
        if isinstance(message, Finish):
            return True
    return False


def bounded(scenario: Callable[[], Awaitable[T]]) -> T:
    """Run it; what never happens in it fails the test instead of the session."""

    async def within() -> T:
        async with asyncio.timeout(PATIENCE):
            return await scenario()

    return asyncio.run(within())


def test_members_that_were_dismissed_are_waited_for_but_not_for_ever() -> None:
    port = free_port()
    group = Roster(LaunchConfig("train.py", nodes=2, rendezvous_port=port), "run", "hash", print)

    async def scenario() -> None:
        server = await group.serve()
        (reader, quick), (_, stuck) = await join(group, port, 0), await join(group, port, 1)
        await group.dismiss(Finish("succeeded", "", 0, ""))
        await group.see_off(0.3)
        assert group.peers.keys() == {0, 1}
        assert await finish_heard(reader)
        quick.close()
        seeing_off = asyncio.create_task(group.see_off(600))
        while 0 in group.peers:
            await asyncio.sleep(0)
        assert not seeing_off.done()
        stuck.transport.abort()
        await seeing_off
        server.close()

    bounded(scenario)


def test_a_member_that_does_not_read_keeps_no_message_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "TELL_WITHIN", 0.3)
    port = free_port()
    group = Roster(LaunchConfig("train.py", nodes=2, rendezvous_port=port), "run", "hash", print)

    async def scenario() -> bool:
        server = await group.serve()
        _, deaf = await join(group, port, 0)
        deaf.transport.pause_reading()  # type: ignore[attr-defined]
        reader, writer = await join(group, port, 1)
        hearing = asyncio.create_task(finish_heard(reader))
        full, took = Stop(1, "x" * 60_000, 1.0), 0.0
        while took < 0.3:  # until the connection holds no more
            began = time.monotonic()
            await group.tell_all(full)
            took = time.monotonic() - began
        await group.tell_all(Finish("failed", "", 1, ""))
        heard = await hearing
        deaf.transport.abort()
        writer.close()
        server.close()
        return heard

    assert bounded(scenario)
