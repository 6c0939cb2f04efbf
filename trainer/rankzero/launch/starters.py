"""Ways to start a worker: a program, a fresh interpreter, or a fork of the warm spare."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rankzero.launch.spare import Spare, SpareError


@dataclass(frozen=True)
class Started:
    """A worker process that leads a session of its own.

    ``end`` resolves to the exit status, negative for a signal. ``output`` is its standard output and error.
    """

    pid: int
    end: asyncio.Future[int]
    output: asyncio.StreamReader


class Starter(Protocol):
    """Starts a script; ``script`` is its path and arguments. Raises OSError where no process can be had."""

    async def __call__(self, script: Sequence[str], environment: Mapping[str, str], /) -> Started: ...


async def start_plainly(script: Sequence[str], environment: Mapping[str, str]) -> Started:
    """``python script args`` as a new process."""
    return await start_program([sys.executable, "-u", *script], environment)


def with_local_rank(starter: Starter) -> Starter:
    """The same with ``--local-rank=N`` before the script's arguments, as ``torch.distributed.launch`` hands it over."""

    async def start(script: Sequence[str], environment: Mapping[str, str]) -> Started:
        path, *args = script
        return await starter([path, f"--local-rank={environment['LOCAL_RANK']}", *args], environment)

    return start


async def start_program(command: Sequence[str], environment: Mapping[str, str]) -> Started:
    """Any program with its arguments as a new process; it is looked for on the PATH of ``environment``."""
    # A pipe of our own: asyncio's would hold back the process's end until all of its children have closed it.
    read, write = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write,
            stderr=write,
            start_new_session=True,
        )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return Started(process.pid, asyncio.create_task(process.wait()), await open_stream(read))


class WarmStarter:
    """Forks the spare, and starts plainly, saying why, where that cannot be."""

    def __init__(self, spare: Spare, say: Callable[[str], None]) -> None:
        self._spare = spare
        self._say = say

    async def __call__(self, script: Sequence[str], environment: Mapping[str, str]) -> Started:
        """See :class:`Starter`."""
        read, write = os.pipe()
        try:
            pid, end = await self._spare.fork(script, environment, write)
        except SpareError as error:
            os.close(read)
            self._say(f"the warm spare cannot be used: {error}; starting plainly")
            return await start_plainly(script, environment)
        finally:
            os.close(write)
        return Started(pid, end, await open_stream(read))


async def open_stream(descriptor: int) -> asyncio.StreamReader:
    """Read a pipe; the descriptor is closed at its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb"))
    return reader
