"""Checkpoints on a fast disk of each node first, then in the shared folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankzero import contract
from rankzero.files import write_bytes
from rankzero.train.checkpoint.copying import Copies
from rankzero.train.checkpoint.layout import Layout, step_of
from rankzero.train.checkpoint.node import Node
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.stream import Writer
from rankzero.train.checkpoint.write import (
    COMMON_FILE,
    METADATA_FILE,
    Outcome,
    Save,
    begun,
    complete,
    explained,
    write,
    write_mine,
)

SMALL_FILES = (COMMON_FILE, METADATA_FILE, contract.MANIFEST_FILE)
"""What rank 0 writes and every node gets, the manifest last."""


class Tier:
    """The newest checkpoint on every node, the ranks' files each on their own, and copies of it on their way.

    A checkpoint of a node's disk has the name and the manifest that it has in the shared folder. It is the newest one
    of the run once every node has published it, and then those before it go.
    """

    def __init__(self, node: Node, shared: Layout, copiers: Peers, afterwards: Callable[[Outcome], None]) -> None:
        """``copiers`` are used by the thread that copies alone; ``afterwards`` is for :class:`Copies`."""
        self.node, self._shared = node, shared
        self.copies = Copies(node.layout, shared, copiers, afterwards)

    def write(self, save: Save, copies: Mapping[str, Any], last_size: int, peers: Peers) -> Outcome:
        """As :func:`rankzero.train.checkpoint.write.write`, on the nodes; copies to the shared folder have begun.

        Where a node's disk is full or fails, it is written to the shared folder itself.
        """
        outcome = self._write_on_nodes(save, copies, peers)
        if not outcome.problem:
            self._keep(self.copies.offer(save.step, save.begun, peers))
            return replace(outcome, on_nodes_only=True)
        if outcome.is_bug:
            return outcome
        if peers.is_first:
            print(
                f"warning: the checkpoint of step {save.step} goes straight to the shared folder: {outcome.problem}",
                flush=True,
            )
        self.copies.hurry(save.step)
        self.copies.join()
        return write(save, copies, self._shared, last_size, peers)

    def catch_up(self, step: int, begun: float, peers: Peers) -> bool:
        """Copy what a run goes on from, where it is on the nodes only, which is the answer. Every rank calls it."""
        missing = peers.broadcast(peers.is_first and not self._shared.path(step).exists())
        if missing:
            self.copies.offer(step, begun, peers)
        return missing

    def close(self, peers: Peers) -> None:
        """After a good end, leave nothing on the nodes if the shared folder has the newest. Every rank calls it."""
        copied = peers.broadcast(_newest(self._shared) >= _newest(self.node.layout))
        if copied and self.node.is_first:
            shutil.rmtree(self.node.layout.state_dir, ignore_errors=True)

    def _write_on_nodes(self, save: Save, copies: Mapping[str, Any], peers: Peers) -> Outcome:
        folder = self.node.layout.unfinished(save.step)
        if problem := peers.first_said(self._begin(save.step)):
            return Outcome(save.step, problem)
        writer = Writer(folder)
        writer.set_up_storage_writer(peers.is_first, rank=peers.rank, use_collectives=True)
        parts = peers.gather(write_mine(save, copies, writer, folder, peers))
        outcome = Outcome(save.step)
        small: dict[str, bytes] = {}
        if peers.is_first:
            outcome = complete(save, parts, writer, folder, None)
            outcome, small = _with_small_files(outcome, folder)
        outcome, small = peers.broadcast((outcome, small))
        if not outcome.problem and (problem := peers.first_said(self._publish(save.step, small, peers))):
            outcome = Outcome(save.step, problem)
        if outcome.problem and self.node.is_first:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _begin(self, step: int) -> str:
        if not self.node.is_first:
            return ""
        layout = self.node.layout
        try:
            last = sum(file.stat().st_size for path in layout.finished()[:1] for file in path.iterdir())
        except OSError as error:
            return explained(error, layout.folder)
        return begun(layout, step, last)

    def _publish(self, step: int, small: Mapping[str, bytes], peers: Peers) -> str:
        if not self.node.is_first:
            return ""
        folder = self.node.layout.unfinished(step)
        try:
            for name, content in small.items() if not peers.is_first else ():
                write_bytes(folder / name, content)
            self.node.layout.publish(step)
        except OSError as error:
            return explained(error, folder)
        return ""

    def _keep(self, steps: set[int]) -> None:
        """Delete all others of this node. What is claimed to be newer was left out when the run went on."""
        if not self.node.is_first:
            return
        for path in self.node.layout.finished():
            if step_of(path) not in steps:
                try:
                    self.node.layout.remove(path)
                except OSError as error:
                    print(f"{path} could not be removed: {error.strerror or error}", flush=True)


def _newest(layout: Layout) -> int:
    return max(map(step_of, layout.finished()), default=0)


def _with_small_files(outcome: Outcome, folder: Path) -> tuple[Outcome, dict[str, bytes]]:
    if outcome.problem:
        return outcome, {}
    try:
        return outcome, {name: (folder / name).read_bytes() for name in SMALL_FILES}
    except OSError as error:
        return Outcome(outcome.step, explained(error, folder)), {}
