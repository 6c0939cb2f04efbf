"""What can be learnt of ranks that have stopped to beat: their Python stacks, and torch's flight recorder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from rankzero import contract, heartbeat
from rankzero.launch.environment import FLIGHT_PIPE
from rankzero.launch.processes import living_descendants

STACK_WITHIN = 2.0
"""Seconds for ranks to write their stacks; one whose process is stopped never does."""
FLIGHT_WITHIN = 3.5
"""Seconds for a rank's flight recorder: NCCL's monitor looks at its pipe once a second, then writes some megabytes."""
LOOK_EVERY = 0.05
LONGEST_LINE = 200
MOST_OF_LINES = 24 * 1024
"""Bytes of the lines of all ranks of a node. They travel in one message, in which each may take twice as many."""
NO_ANSWER = "no answer"
"""Instead of a line: the rank's process is stopped, or stuck in the kernel."""
LIBRARIES = "/lib/python"
"""In the path of every module of the standard library and of installed packages."""


async def dump(folder: Path, ranks: Iterable[int]) -> dict[str, str]:
    """Have these ranks write their stacks into ``folder``, and torch its flight recorder; returns where each is.

    Keys are ranks as texts, values the innermost line of the main thread's stack, or :data:`NO_ANSWER`.
    """
    beats = {rank: beat for rank in ranks if (beat := heartbeat.read(folder / contract.heartbeat_file(rank)))}
    ours = set(living_descendants(os.getpid(), set()))
    stacks = {rank: folder / contract.stack_file(rank) for rank in beats}
    flights = {folder / contract.flight_file(rank) for rank in beats if _ask_flight_recorder(folder, rank)}
    for beat in beats.values():
        if beat.pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(beat.pid, heartbeat.STACK_SIGNAL)
    whole, _ = await asyncio.gather(
        _until_written(set(stacks.values()), STACK_WITHIN), _until_written(flights, FLIGHT_WITHIN)
    )
    room = min(LONGEST_LINE, MOST_OF_LINES // max(1, len(beats)))
    return {
        str(rank): _cut(_innermost(_read(file)), room) if file in whole else NO_ANSWER for rank, file in stacks.items()
    }


def keep(folder: Path, target: Path) -> None:
    """Copy what :func:`dump` brought to ``target`` on the checkpoint volume. Raises OSError.

    What lies there under its name is whole: the volume may hang or fail half-way.
    """
    with contextlib.ExitStack() as opened:
        # Opened before the volume is touched: it may hang for longer than the attempt's folder is there.
        sources = {
            file.name: opened.enter_context(file.open("rb"))
            for pattern in ("*.stack.txt", contract.flight_file("*"))
            for file in folder.glob(pattern)
            if file.is_file() and file.stat().st_size
        }
        target.mkdir(parents=True, exist_ok=True)
        for name, source in sources.items():
            temporary = target / f".{name}.tmp"
            try:
                with temporary.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                temporary.replace(target / name)
            finally:
                temporary.unlink(missing_ok=True)


def _ask_flight_recorder(folder: Path, rank: int) -> bool:
    """NCCL's process group reads orders from a pipe; where there is none, torch has no flight recorder to dump."""
    try:
        pipe = os.open(folder / f"{FLIGHT_PIPE}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.write(pipe, b"1\n") > 0
    except OSError:  # its process has ended a moment ago
        return False
    finally:
        os.close(pipe)


async def _until_written(files: set[Path], within: float) -> set[Path]:
    """Those of the files that are whole, after ``within`` seconds at the latest: not empty, and no longer growing."""
    deadline = time.monotonic() + within
    sizes: dict[Path, int] = {}
    whole: set[Path] = set()
    while whole != files and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_EVERY)
        before, sizes = sizes, {file: size for file in files if (size := _size(file))}
        whole = {file for file, size in sizes.items() if before.get(file) == size}
    return whole


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _read(stack: Path) -> str:
    try:
        return stack.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _innermost(stack: str) -> str:
    """Of faulthandler's text, whose last thread is the main one: the innermost line that is no library's."""
    main = stack.rpartition("hread 0x")[2].splitlines()
    frames = [line.strip() for line in main if line.startswith("  File")]
    return next((frame for frame in frames if LIBRARIES not in frame), frames[0] if frames else "no Python frame")


def _cut(line: str, most: int) -> str:
    """The last ``most`` bytes of a line: file, number and function, where the path before them is long."""
    encoded = line.encode()
    return line if len(encoded) <= most else "..." + encoded[3 - most :].decode(errors="ignore")
