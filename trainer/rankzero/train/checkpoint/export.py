"""``rankzero export``: the weights of a checkpoint as one safetensors file, for everything that does not train."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from rankzero import contract
from rankzero.errors import CheckpointError, ConfigError
from rankzero.files import sync_folder
from rankzero.train.checkpoint import load, manifest, space
from rankzero.train.checkpoint.layout import Layout

ENDING = ".safetensors"


def export(source: Path, target: Path, part: str = "model") -> str:
    """Write the tensors of a module that was tracked as ``part``, unsharded, in one process; returns what was done.

    ``source`` is a checkpoint, or a run's folder for its newest good one. Needs memory for the whole model. Raises
    :class:`ConfigError` where there is no such checkpoint or part, or ``target`` cannot be meant, and
    :class:`CheckpointError` where it is damaged or the file cannot be written.
    """
    _check_target(target)
    folder = _checkpoint(source)
    _say(f"reading {folder}, {space.human(manifest.size(folder))}")
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    tensors: dict[str, Tensor] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata) and name.startswith(f"{part}.")
    }
    if not tensors:
        parts = sorted({name.partition(".")[0] for name in metadata.state_dict_metadata})
        raise ConfigError(f"{folder} has no part {part!r}", hint=f"--part is one of {', '.join(parts)}")
    try:
        document = manifest.read(folder)
        load.read(dict(tensors), reader, metadata)
    except Exception as error:
        if (folder / contract.MANIFEST_FILE).exists():
            raise
        raise CheckpointError(
            f"{folder} has just been deleted, as a run does with older ones", hint="call again: a newer one is there"
        ) from error
    weights = {name.removeprefix(f"{part}."): tensor for name, tensor in tensors.items()}
    try:
        _write(weights, target, {"format": "pt", "step": str(document["step"])})
    except OSError as error:
        raise CheckpointError(
            f"cannot write {error.filename or target}: {error.strerror or error}", hint="is there room?"
        ) from error
    return f"{len(weights)} tensors, {space.human(target.stat().st_size)}, of {folder.name} are in {target}"


def _checkpoint(source: Path) -> Path:
    """The one that is named, or the newest good one. What is damaged has a name and a reason, on standard error."""
    if (source / contract.MANIFEST_FILE).exists():
        if problem := manifest.verify(source):
            raise CheckpointError(f"{source} cannot be trusted: {problem}", hint="export an older one")
        return source
    state_dir = source.parent if source.name == contract.CHECKPOINTS_DIR else source
    for path in Layout(state_dir).finished():
        if not (problem := manifest.verify(path)):
            return path
        _say(f"checkpoint {path.name} is left out: {problem}")
    raise ConfigError(
        f"{source} is no checkpoint: it has no {contract.MANIFEST_FILE}, nor a good checkpoint below it",
        hint=f"name a folder such as STATE_DIR/{contract.checkpoint_dir(100)}, or STATE_DIR",
    )


def _check_target(target: Path) -> None:
    problem = ""
    if target.suffix != ENDING:
        problem = f"does not end in {ENDING}, which is what readers go by"
    elif target.is_dir():
        problem = "is a folder"
    elif not target.parent.is_dir():
        problem = f"lies in {target.parent}, which is no folder"
    if problem:
        raise ConfigError(f"{target or 'the output'} {problem}", hint=f"name the file to write: FOLDER/model{ENDING}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _write(weights: dict[str, Tensor], target: Path, metadata: dict[str, str]) -> None:
    """Whole or not at all."""
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        save_file(weights, temporary, metadata)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except Exception as error:
        if isinstance(error, OSError):
            raise
        raise OSError(None, str(error), str(target)) from error  # safetensors has a class of its own for it
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
