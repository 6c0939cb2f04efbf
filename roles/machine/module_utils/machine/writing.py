"""Whether files can be written, asked before anything is changed. For the modules of all roles."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def unwritable(paths: Iterable[str | Path]) -> list[str]:
    """What is in the way of writing or removing the files: what is there of their paths, on a read-only file system.

    A file that is immutable counts too; one that is not there yet depends on the first of its folders that is.
    """
    found = set()
    for path in map(Path, paths):
        there = {next(folder for folder in path.parents if folder.exists()), *([path] if path.exists() else [])}
        found |= {str(entry) for entry in there if not os.access(entry, os.W_OK)}
    return sorted(found)
