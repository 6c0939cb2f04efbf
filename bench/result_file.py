"""The files in ``bench/results``: what every one of them says first, its targets, and how it is written."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from rankzero.files import read_json, write_json
from scripts.cache import REPO

FOLDER = REPO / "bench" / "results"


def path_of(name: str) -> Path:
    """The file of a measurement's name, e.g. ``recovery``."""
    return FOLDER / f"{name}.json"


def machine() -> dict[str, Any]:
    """The facts of this machine on which times depend, and when they were taken (UTC)."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "kernel": platform.release(),
    }


def at_most(value: float | None, target: float) -> dict[str, Any]:
    """A target that ``value`` must not exceed; None, what never came, misses it."""
    return {"value": value, "target": target, "met": value is not None and value <= target}


def write(name: str, document: dict[str, Any]) -> Path:
    """Write a measurement's file, whole or not at all, and return its path. Raises OSError."""
    path = path_of(name)
    write_json(path, document)
    return path


def read(name: str) -> dict[str, Any] | None:
    """A measurement's file; None where it has not been made yet."""
    document: dict[str, Any] | None = read_json(path_of(name))
    return document
