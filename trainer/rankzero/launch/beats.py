"""The ranks of one node as their heartbeats show them, and what can be learnt of ranks that have stopped to beat."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rankzero import contract, heartbeat
from rankzero.launch.environment import FLIGHT_PIPE
from rankzero.launch.processes import living_descendants
from rankzero.launch.protocol import RankBeat, Report

MEMORY = Path("/dev/shm")  # noqa: S108 -- node-local memory on purpose
ANSWER_WITHIN = 2.0
"""Seconds for ranks to write their stacks; one whose process is stopped never does."""
LOOK_EVERY = 0.05
LONGEST_LINE = 200
LIBRARIES = "/lib/python"
"""In the path of every module of the standard library and of installed packages."""


def attempt_folder(attempt: int) -> tempfile.TemporaryDirectory[str]:
    """A folder for one attempt of this node, in memory where there is some."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix=f"rankzero-attempt-{attempt}-", dir=memory)


def report(attempt: int, folder: Path, ranks: Iterable[int]) -> Report:
    """What these ranks of this node last said; those that have not begun to beat are left out."""
    now = time.monotonic()
    beats = {rank: beat for rank in ranks if (beat := heartbeat.read(folder / contract.heartbeat_file(rank)))}
    rows = [
        RankBeat(
            rank=rank,
            phase=beat.phase.label,
            step=beat.step,
            still=round(max(0.0, now - beat.moved), 3),
            step_seconds=round(beat.step_seconds, 6),
            process=process_state(beat.pid),
        )
        for rank, beat in beats.items()
    ]
    rank0: dict[str, Any] = beats[0].record() if 0 in beats else {}
    return Report(attempt, rows, rank0)


def process_state(pid: int) -> str:
    """The kernel's letter: R runs, S sleeps, D waits for a device, T is stopped, Z has ended; empty where gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def dump(folder: Path, ranks: Iterable[int]) -> dict[str, str]:
    """Have these ranks write their stacks into ``folder``, and torch its flight recorder; returns where each is.

    Keys are ranks as texts, values the innermost line of the main thread's stack, or why there is none.
    """
    beats = {rank: beat for rank in ranks if (beat := heartbeat.read(folder / contract.heartbeat_file(rank)))}
    ours = set(living_descendants(os.getpid(), set()))
    for rank, beat in beats.items():
        _ask_flight_recorder(folder, rank)
        if beat.pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(beat.pid, heartbeat.STACK_SIGNAL)
    deadline = time.monotonic() + ANSWER_WITHIN
    stacks: dict[int, str] = {}
    while len(stacks) < len(beats) and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_EVERY)
        # Whole once it was seen twice alike.
        found = {rank: text for rank in beats if (text := _stack(folder, rank))}
        stacks = {rank: text for rank, text in found.items() if stacks.get(rank, text) == text}
    return {str(rank): _innermost(stacks[rank]) if rank in stacks else "no answer" for rank in beats}


def keep(folder: Path, target: Path) -> None:
    """Copy what :func:`dump` brought to ``target`` on the checkpoint volume. Raises OSError."""
    target.mkdir(parents=True, exist_ok=True)
    for pattern in ("*.stack.txt", contract.flight_file("*")):
        for file in folder.glob(pattern):
            if file.is_file() and file.stat().st_size:
                shutil.copyfile(file, target / file.name)


def _ask_flight_recorder(folder: Path, rank: int) -> None:
    """NCCL's process group reads orders from a pipe; where there is none, torch has no flight recorder to dump."""
    with contextlib.suppress(OSError):
        pipe = os.open(folder / f"{FLIGHT_PIPE}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b"1\n")
        finally:
            os.close(pipe)


def _stack(folder: Path, rank: int) -> str:
    try:
        return (folder / contract.stack_file(rank)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _innermost(stack: str) -> str:
    """Of faulthandler's text, whose last thread is the main one: the innermost line that is no library's."""
    main = stack.rpartition("hread 0x")[2].splitlines()
    frames = [line.strip() for line in main if line.startswith("  File")]
    own = next((frame for frame in frames if LIBRARIES not in frame), frames[0] if frames else "no Python frame")
    return own[:LONGEST_LINE]
