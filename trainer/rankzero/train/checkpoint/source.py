"""From which checkpoint a run begins or goes on."""

from __future__ import annotations

import os
from pathlib import Path

from rankzero import contract, objects
from rankzero.config import ResumeConfig
from rankzero.errors import CheckpointError, ConfigError
from rankzero.train.checkpoint import fetching, manifest
from rankzero.train.checkpoint.layout import NAME, Layout, step_of
from rankzero.train.checkpoint.nearby import Nearby
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.weights import is_weights

KEY = "train.resume.from"


def chosen(
    config: ResumeConfig, layout: Layout, peers: Peers, nearby: Nearby | None = None, mirror: str = ""
) -> Path | None:
    """The checkpoint, or file of weights, to load; None for a run from its beginning. Every rank calls it.

    ``auto`` is the newest good one of the run itself; where its folder has none, of its copies at the URL ``mirror``.
    A path, a URL, and ``none``, say where a run begins: where it has checkpoints of its own, later attempts go on from
    those. Raises :class:`ConfigError` on all ranks, and :class:`CheckpointError` where the run has checkpoints and none
    is good: beginning anew would replace what a volume may only be unable to read now, so ``none`` has to say it.
    """
    if peers.is_first:
        layout.restore()
    own = newest_good(layout, peers, nearby)
    if own is None and config.from_ != "none":
        _refuse_to_replace(layout, peers, mirror)
        own = fetching.own(mirror, layout, peers) if mirror else None
    if config.from_ == "auto" or (own is not None and _later_attempt()):
        return own
    if config.from_ == "none":
        found: Path | str | None = own
        if own is None and mirror:
            found = next((f"{mirror}/{name}" for name in fetching.names(mirror, peers, make=True)), None)
        if found is not None:
            raise ConfigError(
                f"{KEY} is none, but this run has checkpoints ({found}), and its next one would replace them",
                hint=f"set {KEY} to auto to go on from there, or start another run",
            )
        return None
    if own is not None:  # as when torchrun starts the script again
        return own
    if objects.is_url(config.from_):
        return fetching.other(config.from_, KEY, layout, peers)
    return _of_path(Path(config.from_), peers)


def _refuse_to_replace(layout: Layout, peers: Peers, mirror: str) -> None:
    if found := peers.broadcast(layout.finished() if peers.is_first else []):
        names = ", ".join(path.name for path in found)
        raise CheckpointError(
            f"none of the run's checkpoints in {layout.folder} can be trusted: {names}",
            hint="if the volume failed, start again when it is mended; "
            + (
                f"where they are moved away, {mirror} is looked at"
                if mirror
                else f"{KEY}: none begins anew and replaces them"
            ),
        )


def newest_good(layout: Layout, peers: Peers, nearby: Nearby | None = None) -> Path | None:
    """The newest checkpoint whose files are what its manifest says; others are left out by name.

    Every rank calls it: each checks its share of the files. Of the same step, that of the nodes' own disks is taken.
    """
    shared = {step_of(path): path for path in peers.broadcast(layout.finished() if peers.is_first else [])}
    on_nodes = nearby.steps() if nearby else set()
    for step in sorted(shared.keys() | on_nodes, reverse=True):
        if nearby and step in on_nodes:
            path, problem = nearby.folder(step)
            if not problem:
                return path
            if peers.is_first:
                print(f"checkpoint {path.name} on the nodes' own disks is left out: {problem}", flush=True)
        if step in shared:
            path = shared[step]
            if not (problem := verified(path, peers)):
                return path
            if peers.is_first:
                print(f"checkpoint {path.name} is left out: {problem}", flush=True)
    return None


def verified(path: Path, peers: Peers) -> str:
    """Why a checkpoint cannot be trusted, on all ranks alike; empty where it can. Every rank calls it."""
    return peers.first_said(manifest.verify(path, rank=peers.rank, world_size=peers.size))


def _later_attempt() -> bool:
    return int(os.environ.get(contract.ENV_ATTEMPT, 1)) > 1


def _of_path(path: Path, peers: Peers) -> Path:
    """What a path names: a checkpoint, a run's state or checkpoint folder, or a file of weights.

    Rank 0 says which of these it is, since nodes may see different things there and all must ask each other the same.
    """
    if is_weights(path):
        problem = "" if path.is_file() else "there is no such file"
    elif NAME.search(path.name) or peers.broadcast((path / contract.MANIFEST_FILE).exists()):
        problem = verified(path, peers)
    else:
        run = peers.broadcast(_run_of(path))
        if run and (found := newest_good(run, peers)):
            return found
        problem = "it has no manifest" if path.is_dir() else "there is no such folder"
    if told := peers.first_said(problem):
        raise ConfigError(
            f"{KEY} is {path}, which is no checkpoint to trust: {told}",
            hint="allowed: auto, none, the folder of a checkpoint (with its MANIFEST.json), that of a run, the URL of "
            "such a folder, or a .safetensors, .pt, .pth or .bin file of weights; every rank must see it",
        )
    return path


def _run_of(path: Path) -> Layout | None:
    for layout in (Layout(path), Layout(path.parent)):
        if layout.folder.is_dir() and path in (layout.state_dir, layout.folder):
            return layout
    return None
