"""Checkpoints from an object store into the run's folder: each rank a share of the files, verified on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from rankzero import contract, objects
from rankzero.errors import CheckpointError, ConfigError
from rankzero.train.checkpoint import manifest
from rankzero.train.checkpoint.copying import completed, shared_out
from rankzero.train.checkpoint.layout import Layout, step_of
from rankzero.train.checkpoint.manifest import Files
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.write import begun
from rankzero.transfer import NAME, Transfers

FETCHED = "fetched"
"""Ends the hidden folder of what another run has left; the run's first save removes it."""


def names(url: str, peers: Peers, *, make: bool = False) -> list[str]:
    """Names of the whole checkpoints in a folder of a store, newest first. Every rank calls it.

    ``make`` makes it where it is a folder of a file system and not there.

    Raises :class:`CheckpointError` where the store cannot be asked: there may be some.
    """
    found, problem = peers.broadcast(Transfers().run("look", url, make=make) if peers.is_first else ({}, ""))
    if problem:
        raise CheckpointError(f"cannot look for checkpoints in {url}: {problem}", hint=_hint(url))
    return sorted(found["whole"], reverse=True)


def own(url: str, layout: Layout, peers: Peers) -> Path | None:
    """The newest good checkpoint of the run's folder in the store, which becomes one of its folder here.

    Every rank calls it. Others are left out by name. Raises :class:`CheckpointError` where there are some and none is
    good: beginning anew would replace them.
    """
    found = names(url, peers, make=True)
    for name in found:
        if not _fetch(url, name, layout, peers):
            return layout.path(step_of(Path(name)))
    if found:
        raise CheckpointError(f"none of the checkpoints in {url} can be used: {', '.join(found)}", hint=_hint(url))
    return None


def other(url: str, key: str, layout: Layout, peers: Peers) -> Path:
    """The checkpoint that a URL names, or the newest good one of a run's folder, in a hidden folder of the run's own.

    Every rank calls it. Raises :class:`ConfigError` on all ranks where there is none to trust.
    """
    parent, _, name = url.rstrip("/").rpartition("/")
    found, problem = [name], ""
    if not NAME.fullmatch(name):
        parent = url.rstrip("/")
        found, problem = names(parent, peers), f"no step-*/{contract.MANIFEST_FILE} is below it"
    for name in found:
        hidden = peers.broadcast(Layout(layout.folder / f".{name}.{FETCHED}"))
        problem = _fetch(parent, name, hidden, peers)
        if not problem:
            return hidden.path(step_of(Path(name)))
    raise ConfigError(
        f"{key} is {url}, which is no checkpoint to trust: {problem}",
        hint=f"allowed: the URL of a checkpoint, .../step-0000001000, or of the folder that has some; {_hint(url)}",
    )


def _fetch(url: str, name: str, layout: Layout, peers: Peers) -> str:
    """Have a checkpoint in ``layout``; why not, if not, on all ranks alike."""
    step = step_of(Path(name))
    transfers = Transfers()
    text, problem = peers.broadcast(transfers.run("manifest", url, name=name) if peers.is_first else ("", ""))
    files: Files = {}
    if not problem:
        files, problem = _files(text)
    if not problem:
        size = sum(int(file["size"]) for file in files.values())
        problem = peers.broadcast(begun(layout, step, size) if peers.is_first else "")
    if not problem:
        mine = shared_out(files, [set(files)] * peers.size)[peers.rank]
        if mine:
            wanted = {file: files[file] for file in mine}
            _, problem = transfers.run("fetch", url, name=name, target=str(layout.unfinished(step)), files=wanted)
        problem = peers.first_said(problem)
        if not problem:
            problem = peers.broadcast(completed(layout, step, files, text.encode()) if peers.is_first else "")
    if peers.is_first:
        if problem:
            shutil.rmtree(layout.unfinished(step), ignore_errors=True)
        print(f"checkpoint {name} of {url} {f'is left out: {problem}' if problem else 'has been fetched'}", flush=True)
    return problem


def _files(text: str) -> tuple[Files, str]:
    """What a manifest names, which are files of one folder, or why it cannot be used."""
    try:
        document = json.loads(text)
        files: Files = document["files"]
        if (found := document["format"]) != manifest.FORMAT:
            return {}, f"its format is {found}, and this version of rankzero reads {manifest.FORMAT}"
        if not files or any(
            Path(name).name != name or not isinstance(file["size"], int) for name, file in files.items()
        ):
            return {}, "its manifest names no files of its own"
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, "its manifest cannot be read"
    return files, ""


def _hint(url: str) -> str:
    return "is the folder mounted, and readable?" if url.startswith("file:") else objects.CREDENTIALS
