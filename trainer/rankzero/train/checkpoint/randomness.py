"""The random generators of a rank (Python's, torch's, numpy's where it is used), a part of what a run resumes from."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

import torch


def state() -> dict[str, Any]:
    """The states of this rank's generators, as plain data that ``weights_only`` loading accepts."""
    version, internal, gauss = random.getstate()
    found: dict[str, Any] = {"python": [version, list(internal), gauss], "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    if (numpy := sys.modules.get("numpy")) is not None:
        kind, key, *rest = numpy.random.get_state()
        found["numpy"] = [kind, key.tolist(), *rest]
    return found


def restore(state: dict[str, Any]) -> None:
    """Undo what has been drawn since :func:`state`."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
    if "numpy" in state:
        importlib.import_module("numpy.random").set_state(tuple(state["numpy"]))
