"""A checkpoint put together from what lies on the nodes, where together they have all of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rankzero import contract
from rankzero.train.checkpoint import manifest
from rankzero.train.checkpoint.layout import step_of
from rankzero.train.checkpoint.node import Node
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.write import COMMON_FILE, METADATA_FILE, explained

Ranges = dict[str, set[tuple[int, int]]]
"""By name of a file: offsets and lengths, bytes."""
MESSAGE = 2**26
"""Bytes that a rank sends at a time, about."""


class Nearby:
    """Looks at the nodes' own disks before a run goes on. Every rank calls everything, in the same order."""

    def __init__(self, node: Node, peers: Peers, needs: Callable[[Path], Ranges]) -> None:
        """``needs`` tells what a rank is going to read of a checkpoint, from its small files, which all nodes have."""
        self._node, self._peers, self._needs = node, peers, needs

    def steps(self) -> set[int]:
        """Those of which any node has something."""
        return set().union(*self._peers.share({step_of(path) for path in self._node.layout.finished()}))

    def folder(self, step: int) -> tuple[Path, str]:
        """Where this rank finds what it needs of the checkpoint of ``step``, or why nobody can go on from there.

        Most of it has been on its node. What other nodes have, such as the half of a replicated model, or counts of an
        optimizer, is sent, so pods may also have changed places. Only the ranges that are needed are.
        """
        path = self._node.layout.path(step)
        identity, there, problem = self._look(path)
        found = self._peers.share((identity, there, problem))
        for rank, (other, _, problem) in enumerate(found):
            if problem or other != found[0][0]:
                return path, f"rank {rank}: {problem or 'its node has another one of that step'}"
        holders = {name: rank for rank in reversed(range(len(found))) for name in found[rank][1]}
        needs = self._needs(path)
        wanted = self._peers.share({name: parts for name, parts in needs.items() if name not in there})
        if lost := sorted({name for want in wanted for name in want} - holders.keys()):
            return path, f"{lost[0]} is on none of the nodes"
        if not any(wanted):
            return path, ""
        view = path.with_name(f".{path.name}.view")
        problem = self._peers.first_said(self._link(path, view))
        not_sent = self._peers.first_said(self._exchange(path, view, wanted, holders))
        problem = problem or not_sent
        return (path, problem) if problem else (view, "")

    def _look(self, path: Path) -> tuple[str, set[str], str]:
        """What this node has of a checkpoint, verified; each of its ranks reads a share of the files."""
        try:
            text = (path / contract.MANIFEST_FILE).read_bytes()
            document = json.loads(text)
            files = document["files"]
            there = {name: file for name, file in files.items() if (path / name).exists()}
            if document["world_size"] != self._peers.size:
                return "", set(), f"it is of {document['world_size']} ranks"
            if lacking := {COMMON_FILE, METADATA_FILE} - there.keys():
                return "", set(), f"its node lacks {min(lacking)}"
            problem = manifest.mismatch(path, there, self._node.index, len(self._node.together))
            return hashlib.sha256(text).hexdigest(), set(there), problem
        except FileNotFoundError:
            return "", set(), "its node has nothing of it"
        except OSError as error:
            return "", set(), explained(error, path)
        except (ValueError, KeyError, TypeError, AttributeError):
            return "", set(), "its manifest cannot be read"

    def _link(self, path: Path, view: Path) -> str:
        """The node's own files under another folder, to which others can be added."""
        if not self._node.is_first:
            return ""
        try:
            shutil.rmtree(view, ignore_errors=True)
            view.mkdir()
            for file in path.iterdir():
                (view / file.name).symlink_to(file)
        except OSError as error:
            return explained(error, view)
        return ""

    def _exchange(self, path: Path, view: Path, wanted: list[Ranges], holders: dict[str, int]) -> str:
        """Send to all what some lack; on each node that lacks it, its first rank writes it where it belongs."""
        here = {name for rank in self._node.together for name in wanted[rank]}
        problem = ""
        for name in sorted({name for want in wanted for name in want}):
            for batch in _batches(set().union(*(want.get(name, set()) for want in wanted))):
                pieces: list[bytes] = []
                try:
                    if holders[name] == self._peers.rank:
                        pieces = _read(path / name, batch)
                except OSError as error:
                    problem = problem or explained(error, path)
                pieces = self._peers.broadcast(pieces, holders[name])
                try:
                    if name in here and self._node.is_first and pieces:
                        _write(view / name, batch, pieces)
                except OSError as error:
                    problem = problem or explained(error, view)
        return problem


def _batches(ranges: set[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """All of ``ranges``, in pieces, as many at a time as make a message."""
    batch: list[tuple[int, int]] = []
    size = 0
    for offset, length in sorted(ranges):
        for start in range(offset, offset + length, MESSAGE):
            piece = min(MESSAGE, offset + length - start)
            if batch and size + piece > MESSAGE:
                yield batch
                batch, size = [], 0
            batch.append((start, piece))
            size += piece
    if batch:
        yield batch


def _read(file: Path, ranges: list[tuple[int, int]]) -> list[bytes]:
    with file.open("rb", buffering=0) as reading:
        return [os.pread(reading.fileno(), length, offset) for offset, length in ranges]


def _write(file: Path, ranges: list[tuple[int, int]], pieces: list[bytes]) -> None:
    """Into a file with holes, which nobody reads."""
    file.touch()
    with file.open("r+b") as writing:
        for (offset, _), piece in zip(ranges, pieces, strict=True):
            writing.seek(offset)
            writing.write(piece)
