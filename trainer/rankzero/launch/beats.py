"""The ranks of one node as their heartbeats show them."""

from __future__ import annotations

import dataclasses
import glob
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from rankzero import contract, heartbeat
from rankzero.files import finite
from rankzero.heartbeat import Beat
from rankzero.launch.processes import process_state
from rankzero.launch.protocol import Lead, RankBeat, Report

MEMORY = Path("/dev/shm")  # noqa: S108 -- node-local memory on purpose


def attempt_folder(pod_uid: str, attempt: int) -> tempfile.TemporaryDirectory[str]:
    """A folder for one attempt of this node, in memory where there is some. Raises OSError where there is no room."""
    prefix = f"{_folders_of(pod_uid)}{attempt}-"
    try:
        return tempfile.TemporaryDirectory(prefix=prefix, dir=MEMORY, ignore_cleanup_errors=True)
    except OSError:  # none here, or it is full
        return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


def remove_leftovers(pod_uid: str) -> None:
    """Remove the folders of this pod's attempts that a launcher before this one could not: its memory holds them.

    Those of other pods may lie beside them, with the host's memory for example.
    """
    for place in (MEMORY, Path(tempfile.gettempdir())):
        for folder in place.glob(f"{glob.escape(_folders_of(pod_uid))}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _folders_of(pod_uid: str) -> str:
    return f"rankzero-attempt-{pod_uid}-"


def report(attempt: int, folder: Path, ranks: Iterable[int]) -> Report:
    """What these ranks of this node last said; those that have not begun to beat are left out."""
    now = time.monotonic()
    beats = {rank: beat for rank in ranks if (beat := heartbeat.read(folder / contract.heartbeat_file(rank)))}
    rows = [
        RankBeat(
            rank=rank,
            watched=beat.watched,
            phase=beat.phase.label,
            step=beat.step,
            still=round(max(0.0, now - beat.moved), 3),
            step_seconds=round(beat.step_seconds, 6),
            own_seconds=round(beat.own_seconds, 6),
            process=process_state(beat.pid),
        )
        for rank, beat in beats.items()
    ]
    return Report(attempt, rows, [_lead(beats[0])] if 0 in beats else [])


def _lead(beat: Beat) -> Lead:
    told = {field.name: getattr(beat, field.name) for field in dataclasses.fields(Lead)}
    return Lead(**{**told, "phase": beat.phase.label, "loss": finite(beat.loss)})
