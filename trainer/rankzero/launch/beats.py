"""The ranks of one node as their heartbeats show them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rankzero import contract, heartbeat
from rankzero.launch.protocol import RankBeat, Report

MEMORY = Path("/dev/shm")  # noqa: S108 -- node-local memory on purpose


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
