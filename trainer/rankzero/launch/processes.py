"""Processes that workers leave behind: PID 1, or the launcher as subreaper, inherits them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
KILL_WITHIN = 5.0
"""Seconds for killed processes to be gone."""


def inherit_orphans() -> None:
    """Make this process the parent of orphaned descendants, as PID 1 of a container is anyway."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def reap_strays(known: set[int]) -> None:
    """Collect ended processes that were handed to this one; ``known`` are left to those who wait for them."""
    while (child := _ended_child()) is not None and child not in known:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


async def kill_strays(known: set[int]) -> list[int]:
    """End every descendant of this process but ``known``, also those that left their process group.

    Returns those that did not end in time: a process in an uninterruptible system call does not even end by SIGKILL.
    """
    deadline = time.monotonic() + KILL_WITHIN
    while strays := living_descendants(os.getpid(), known):
        if time.monotonic() > deadline:
            return strays
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap_strays(known)
        await asyncio.sleep(0.02)
    return []


def living_descendants(root: int, without: set[int]) -> list[int]:
    """Children, grandchildren, ... of a process that have not ended, but for the processes in ``without``."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if state != "Z":
            below.setdefault(int(parent), []).append(int(stat.parent.name))
    found: list[int] = []
    queue = [root]
    while queue:
        children = below.get(queue.pop(), [])
        found += children
        queue += children
    return [pid for pid in found if pid not in without]


def process_state(pid: int) -> str:
    """The kernel's letter: R runs, S sleeps, D waits for a device, T is stopped, Z has ended; empty where gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _ended_child() -> int | None:
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info else None
