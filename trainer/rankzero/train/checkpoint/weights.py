"""Weights alone, from the files that everybody has: safetensors, or torch.save of a state_dict."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

from rankzero.errors import CheckpointError
from rankzero.train.checkpoint.peers import Peers

ENDINGS = (".safetensors", ".pt", ".pth", ".bin")
WRAPPED = ("model", "state_dict", "module", "model_state_dict")
"""Under which of these a training script's own file may hold them."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""Of names in a wrapped model's state_dict: DDP, torch.compile, a bigger module."""


def is_weights(path: Path) -> bool:
    """Whether a path is that of a file of weights, by its ending."""
    return path.suffix in ENDINGS


def load(module: nn.Module, path: Path, *, strict: bool, peers: Peers) -> list[str]:
    """Give ``module`` the weights of a file, sharded as it is; the names that were passed over are returned.

    Every rank calls it, and reads what it needs: the file is mapped, not read as a whole. Raises
    :class:`CheckpointError` on all ranks where it does not fit and ``strict`` is set, and where it cannot be read.
    """
    wanted = get_model_state_dict(module)
    known = dict.fromkeys(chain.from_iterable(peers.share(list(wanted))))  # a pipeline's stages have each a part
    with peers.all_or_none(f"{path} could not be read"):
        found = _fitted(_read(path), known)
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - known.keys())
    shapes = [name for name in found.keys() & wanted.keys() if _shape(found[name]) != _shape(wanted[name])]
    problems = [f"{name} is missing" for name in missing] + [f"{name} is not in the model" for name in extra]
    problems += [f"{name} is {_shape(found[name])}, not {_shape(wanted[name])}" for name in sorted(shapes)]
    problems = peers.first_said(problems)
    if problems and strict:
        raise CheckpointError(
            f"the weights in {path} do not fit the model: {'; '.join(problems[:5])}"
            + (f"; and {len(problems) - 5} more" if len(problems) > 5 else ""),
            hint="set train.resume.strict to false to load what fits",
        )
    fitting = {name: value for name, value in found.items() if name in wanted and name not in shapes}
    if not any(peers.share(bool(fitting))):
        raise CheckpointError(f"{path} has no weight of the model", hint="is it the file of another model?")
    set_model_state_dict(module, fitting, options=StateDictOptions(full_state_dict=True, strict=False))
    return problems


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file  # not needed by those who do not use it

            return dict(load_file(path))
        # Files of torch before 1.6 are no archives, and cannot be mapped.
        document = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:
        if found := re.search(r"GLOBAL (\S+)", str(error)):  # torch would have people read it without looking
            raise CheckpointError(
                f"{path} holds more than weights: a {found[1]}, which could run code",
                hint="load it once where you trust it, and save model.state_dict() alone",
            ) from error
        said = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise CheckpointError(f"cannot read weights from {path}: {said}", hint="is the file whole?") from error
    for name in WRAPPED:
        if isinstance(document, Mapping) and isinstance(document.get(name), Mapping):
            document = document[name]
            break
    if not isinstance(document, Mapping) or not any(isinstance(value, Tensor) for value in document.values()):
        raise CheckpointError(f"{path} holds no state_dict", hint=f"as it is, or under {', '.join(WRAPPED)}")
    return dict(document)


def _fitted(found: dict[str, Any], wanted: Mapping[str, object]) -> dict[str, Any]:
    """``found`` without a prefix that a wrapper has put before all names, where that makes them fit."""
    while not found.keys() & wanted.keys():
        prefix = next((p for p in PREFIXES if all(name.startswith(p) for name in found)), None)
        if prefix is None or not found:
            break
        found = {name.removeprefix(prefix): value for name, value in found.items()}
    return found
