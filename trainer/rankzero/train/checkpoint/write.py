"""One checkpoint, from copies to durable files. Every rank takes part; all learn how it went."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.storage import WriteResult

from rankzero.train.checkpoint import manifest, space
from rankzero.train.checkpoint.layout import Layout
from rankzero.train.checkpoint.manifest import Files
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.plan import Plan, Planner
from rankzero.train.checkpoint.stream import Writer
from rankzero.train.checkpoint.tracked import Capture

COMMON_FILE = "state.pt"
"""What is no tensor of a module or optimizer: step, schedules, data position, random states of all ranks."""
METADATA_FILE = ".metadata"
"""torch.distributed.checkpoint's index of the tensors."""


@dataclass(frozen=True)
class Save:
    """What is to be written."""

    step: int
    capture: Capture
    plan: Plan
    settings: Any
    metric: float | None
    begun: float
    """Monotonic time of the call."""


@dataclass(frozen=True)
class Outcome:
    """How it went, the same on every rank."""

    step: int
    problem: str = ""
    """Why there is no checkpoint of that step; empty where there is."""
    is_bug: bool = False
    """The problem is not one of the volume: it would be the same the next time."""
    seconds: float = 0.0
    """From the call until all of it was durable."""
    size: int = 0
    on_nodes_only: bool = False
    """It is durable on the nodes' own disks, and not yet where all ranks see it."""


@dataclass(frozen=True)
class Part:
    """What one rank tells of its writing."""

    results: list[WriteResult]
    files: Files
    own: dict[str, Any]
    problem: str
    is_bug: bool


def write(save: Save, copies: Mapping[str, Any], layout: Layout, last_size: int, peers: Peers) -> Outcome:
    """Write, sync, complete by the manifest, rename. Every rank calls it; a rank that fails makes it fail on all."""
    folder = layout.unfinished(save.step)
    problem = peers.broadcast(begun(layout, save.step, last_size) if peers.is_first else "")
    if problem:
        return Outcome(save.step, problem)
    writer = Writer(folder)
    writer.set_up_storage_writer(peers.is_first, rank=peers.rank, use_collectives=True)
    parts = peers.gather(write_mine(save, copies, writer, folder, peers))
    outcome = Outcome(save.step)
    if peers.is_first:
        outcome = complete(save, parts, writer, folder, layout)
        if outcome.problem:
            shutil.rmtree(folder, ignore_errors=True)  # on a full volume it is in the way of the next one
    return peers.broadcast(outcome)


def begun(layout: Layout, step: int, last_size: int) -> str:
    """Make the folder to write into, where there is room for it; why not, if not."""
    try:
        layout.folder.mkdir(parents=True, exist_ok=True)
        layout.make_room()  # first: what killed saves have left may be what fills the volume
        if refusal := space.refusal(layout.folder, last_size):
            return refusal
        layout.begin(step)
    except OSError as error:
        return explained(error, layout.folder)
    return ""


def write_mine(save: Save, copies: Mapping[str, Any], writer: Writer, folder: Path, peers: Peers) -> Part:
    """This rank's files, durable when it returns."""
    results: list[WriteResult] = []
    files: Files = {}
    problem, is_bug = "", False
    try:
        results = writer.write_data(save.plan.mine, Planner(copies)).value()
        files = writer.described
    except Exception as error:
        cause = _os_error(error)
        problem, is_bug = (explained(cause, folder), False) if cause else (f"{type(error).__name__}: {error}", True)
        if peers.size > 1:
            problem = f"rank {peers.rank}: {problem}"
    return Part(results, files, save.capture.own, problem, is_bug)


def complete(save: Save, parts: list[Part], writer: Writer, folder: Path, layout: Layout | None) -> Outcome:
    """Rank 0 adds what only it knows, and the manifest last, then makes it a checkpoint of ``layout``.

    Without ``layout`` the other ranks' files are on disks of their own, and it does not become a checkpoint here.
    """
    for part in parts:
        if part.problem:
            return Outcome(save.step, part.problem, part.is_bug)
    files = {name: file for part in parts for name, file in part.files.items()}
    try:
        for name, file in files.items() if layout else ():
            if not (folder / name).exists() or (folder / name).stat().st_size != file["size"]:
                raise OSError(errno.ENOENT, "rank 0 does not see what another rank wrote; is the volume shared?", name)
        assert save.plan.metadata is not None
        writer.finish(save.plan.metadata, [part.results for part in parts])
        _write_common(folder / COMMON_FILE, save.capture.common, [part.own for part in parts])
        files |= manifest.describe(folder, [COMMON_FILE, METADATA_FILE])
        manifest.write(
            folder,
            step=save.step,
            world_size=len(parts),
            files=files,
            settings=save.settings,
            metric=save.metric,
        )
        if layout:
            layout.publish(save.step)
    except OSError as error:
        return Outcome(save.step, explained(error, folder))
    except Exception as error:
        return Outcome(save.step, f"{type(error).__name__}: {error}", is_bug=True)
    size = sum(file["size"] for file in files.values())
    return Outcome(save.step, seconds=time.monotonic() - save.begun, size=size)


def _write_common(path: Path, common: bytes, own: list[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        try:
            torch.save({"common": common, "own": own}, file)
        except RuntimeError as error:
            raise _os_error(error) or error from None
        file.flush()
        os.fsync(file.fileno())


def _os_error(error: BaseException | None) -> OSError | None:
    """What the volume said: torch's writer puts a RuntimeError of its own on top of it."""
    while error is not None:
        if isinstance(error, OSError):
            return error
        error = error.__cause__ or error.__context__
    return None


def explained(error: OSError, folder: Path) -> str:
    """What the volume said, for people."""
    return f"{error.strerror or error}: {error.filename or folder}"
