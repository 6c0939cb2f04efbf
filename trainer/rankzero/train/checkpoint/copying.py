"""Finished checkpoints from the nodes' own disks to the shared folder, beside the training."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rankzero import contract
from rankzero.files import write_bytes
from rankzero.train.checkpoint import manifest
from rankzero.train.checkpoint.background import give_way
from rankzero.train.checkpoint.layout import Layout
from rankzero.train.checkpoint.manifest import Files
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.stream import PIECE, SummedFile
from rankzero.train.checkpoint.write import Outcome, begun, explained

GIVEN_UP = "a newer one is waited for"


class Copies:
    """Copies one checkpoint at a time; what is finished meanwhile waits, the newest alone.

    Every rank has one and copies what lies on its node, as the other ranks there do, a part of it. Rank 0 decides what
    is next, adds the manifest when all files are durable, and publishes.
    """

    def __init__(
        self, local: Layout, shared: Layout, peers: Peers, afterwards: Callable[[Outcome], None] | None = None
    ) -> None:
        """``afterwards`` is called on every rank for each that is durable, before the next one begins."""
        self._local, self._shared, self._peers, self._afterwards = local, shared, peers, afterwards
        self._thread: threading.Thread | None = None
        self._outcomes: queue.SimpleQueue[Outcome | Exception] = queue.SimpleQueue()
        self._begun: dict[int, float] = {}
        self._hurry = 0
        self._turn = threading.Lock()
        self._current = self._next = 0

    def offer(self, step: int, begun: float, peers: Peers) -> set[int]:
        """Copy ``step``, saved since ``begun`` (monotonic), as soon as it is its turn.

        Every rank calls it, none while another call is under way; the steps that must stay on the nodes are returned.
        """
        self._begun[step] = begun
        starts, stay = peers.broadcast(self._take_turn(step) if peers.is_first else (False, set()))
        if starts:
            self.join()  # rank 0's has said that nothing is left
            self._thread = threading.Thread(target=self._run, args=(step,), name="checkpoint-copy", daemon=True)
            self._thread.start()
        return stay

    def hurry(self, step: int) -> None:
        """Give up what is older than ``step``: that one is going to be waited for. Every rank calls it."""
        self._hurry = step

    def poll(self) -> Iterator[Outcome]:
        """What has become known since the last call; raises what ended the copying, as when another rank is gone."""
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome

    def join(self) -> None:
        """Wait until nothing is left to be copied."""
        if (thread := self._thread) is not None:
            thread.join()
            self._thread = None

    def give_up(self, limit: float) -> None:
        """Leave the rest to the next attempt, within ``limit`` seconds: a thread must not be in a collective at the end
        of the process."""
        self._hurry = sys.maxsize
        if (thread := self._thread) is not None:
            thread.join(limit)

    def _take_turn(self, step: int) -> tuple[bool, set[int]]:
        with self._turn:
            if not self._current:
                self._current = step
                return True, {step}
            if self._next:
                print(
                    f"the checkpoint of step {self._next} stays out of the shared folder: copies take longer than the "
                    f"time between two saves, and that of step {step} is newer",
                    flush=True,
                )
            self._next = step
            return False, {step, self._current}

    def _take_next(self) -> int:
        with self._turn:
            self._current, self._next = self._next, 0
            return self._current

    def _run(self, step: int) -> None:
        give_way()
        try:
            while step:
                outcome = self._copy(step)
                if outcome.problem != GIVEN_UP:
                    self._outcomes.put(outcome)
                if not outcome.problem and self._afterwards:
                    self._afterwards(outcome)
                step = self._peers.broadcast(self._take_next() if self._peers.is_first else 0)
        except Exception as error:
            self._outcomes.put(error)

    def _copy(self, step: int) -> Outcome:
        peers, source, target = self._peers, self._local.path(step), self._shared.unfinished(step)
        problem = peers.broadcast(begun(self._shared, step, manifest.size(source)) if peers.is_first else "")
        if not problem:
            files, mine, problem = share_of(source, peers)
        if not problem:
            problem = peers.first_said(self._copy_files(source, target, files, mine, step))
            if not problem and peers.is_first:
                problem = self._complete(source, step, files)
        if peers.is_first and problem:
            shutil.rmtree(target, ignore_errors=True)
        seconds = time.monotonic() - self._begun.pop(step, time.monotonic())
        outcome = Outcome(step, problem, seconds=seconds, size=manifest.size(source))
        return peers.broadcast(outcome)

    def _copy_files(self, source: Path, target: Path, files: Files, mine: list[str], step: int) -> str:
        try:
            for name in mine:
                if not copy(source / name, target / name, files[name]["crc32"], lambda: step < self._hurry):
                    return GIVEN_UP
        except OSError as error:
            return explained(error, target)
        except ValueError as error:
            return f"rank {self._peers.rank}: {error}"
        return ""

    def _complete(self, source: Path, step: int, files: Files) -> str:
        try:
            text = (source / contract.MANIFEST_FILE).read_bytes()
        except OSError as error:
            return explained(error, source)
        return completed(self._shared, step, files, text)


def completed(layout: Layout, step: int, files: Files, text: bytes) -> str:
    """Rank 0, when all ``files`` have been copied: add the manifest and make it a checkpoint; why not, if not."""
    target = layout.unfinished(step)
    try:
        for name, file in files.items():
            if not (target / name).exists() or (target / name).stat().st_size != file["size"]:
                return f"rank 0 does not see {name}, which another rank has copied; is the folder shared?"
        write_bytes(target / contract.MANIFEST_FILE, text)
        layout.publish(step)
    except OSError as error:
        return explained(error, target)
    return ""


def share_of(source: Path, peers: Peers) -> tuple[Files, list[str], str]:
    """All files of a checkpoint, those that this rank copies, and why there is nothing to copy. Every rank calls it."""
    files: Files = {}
    problem = ""
    try:
        files = manifest.read(source)["files"]
    except (OSError, ValueError) as error:
        problem = f"rank {peers.rank}: {error}"
    offers = peers.share(({name for name in files if (source / name).exists()}, problem))
    there = [names for names, _ in offers]
    problem = next((problem for _, problem in offers if problem), "")
    if not problem and (lost := files.keys() - set().union(*there)):
        problem = f"{min(lost)} is missing"
    return files, shared_out(files, there)[peers.rank], problem


def shared_out(files: Files, there: list[set[str]]) -> list[list[str]]:
    """For each rank the files that it copies, of those that are there for it: as many bytes as others, if it can."""
    load = [0] * len(there)
    shares: list[list[str]] = [[] for _ in there]
    for name in sorted(files, key=lambda name: (-int(files[name]["size"]), name)):
        if ranks := [rank for rank, names in enumerate(there) if name in names]:
            rank = min(ranks, key=load.__getitem__)
            load[rank] += int(files[name]["size"])
            shares[rank].append(name)
    return shares


def copy(source: Path, target: Path, checksums: list[str], is_unwanted: Callable[[], bool]) -> bool:
    """Copy a file and make it durable; False where it is no longer wanted, and part of it is left.

    Raises OSError, and ValueError where what was read does not have these ``checksums`` of its blocks.
    """
    writing = SummedFile(target)
    try:
        with source.open("rb", buffering=0) as reading:
            while piece := reading.read(PIECE):
                if is_unwanted():
                    return False
                writing.write(piece)
                os.posix_fadvise(reading.fileno(), 0, reading.tell(), os.POSIX_FADV_DONTNEED)  # the reader's data stays
        writing.close()
    finally:
        writing.abandon()
    if writing.description["crc32"] != checksums:
        raise ValueError(f"{source} does not match its checksum")
    return True
