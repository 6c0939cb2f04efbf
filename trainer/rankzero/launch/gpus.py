"""GPU memory between two attempts: the driver frees that of a killed process a moment after its end, or never."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable

WITHIN = 10.0
"""Seconds to wait for the memory, nvidia-smi's own time included."""
KILL_WITHIN = 1.0
EVERY = 0.25
NEAR = 100
"""MiB by which a GPU may hold more than before the first attempt."""
QUERY = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")


class Gpus:
    """The GPUs of this pod, as nvidia-smi sees them; without it, or without GPUs, nothing happens.

    nvidia-smi runs as a child of the launcher: call this only while nobody else collects ended children. ``say``
    prints a line for a person.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._program = shutil.which("nvidia-smi")
        self._before: dict[str, int] = {}
        self._used_since = False

    async def remember(self) -> None:
        """Note what is in use before the first attempt."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHIN):
                self._before = await self._in_use()

    async def wait_until_free(self) -> None:
        """Before the workers of an attempt start: wait until those of the one before have given their memory back.

        After :data:`WITHIN` it is said which GPU still holds how much, or cannot be seen any more.
        """
        first, self._used_since = not self._used_since, True
        if first or not self._before:
            return
        now: dict[str, int] | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHIN):
                while self._held(now := await self._in_use()):
                    await asyncio.sleep(EVERY)
        if now is None:
            self._say(f"nvidia-smi did not answer within {WITHIN:g} s: whether the GPUs' memory is free is not known")
            return
        for index in self._before.keys() - now.keys():
            self._say(f"GPU {index} is not shown by nvidia-smi any more; its node's kernel log may have an Xid error")
        for index, more in self._held(now).items():
            self._say(
                f"GPU {index} still holds {more} MiB more than before the first attempt, though no worker is left; "
                "the next attempt may run out of GPU memory by it"
            )

    def _held(self, now: dict[str, int]) -> dict[str, int]:
        more = {index: used - self._before[index] for index, used in now.items() if index in self._before}
        return {index: surplus for index, surplus in more.items() if surplus > NEAR}

    async def _in_use(self) -> dict[str, int]:
        """MiB in use by index of the GPU; empty where nvidia-smi has none to show or cannot."""
        if self._program is None:
            return {}
        try:
            process = await asyncio.create_subprocess_exec(
                self._program, *QUERY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError:
            return {}
        try:
            output, _ = await process.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                process.kill()
                async with asyncio.timeout(KILL_WITHIN):  # a GPU that hangs holds it in a system call
                    await process.wait()
            raise
        rows = [line.split(", ") for line in output.decode(errors="replace").splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}  # else "[N/A]"
