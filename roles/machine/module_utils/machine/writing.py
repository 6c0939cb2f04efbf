"""Whether files can be written, asked before anything is changed. For the modules of all roles."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def unwritable(paths: Iterable[str | Path]) -> list[str]:
    """What is in the way of writing or removing the files: what is there of their paths, on a read-only file system.

    The folder is named rather than the file, unless the file alone is immutable.
    """
    found = set()
    for path in map(Path, paths):
        folder = next(folder for folder in path.parents if folder.exists())
        in_the_way = [entry for entry in (folder, path) if entry.exists() and not os.access(entry, os.W_OK)]
        found |= set(map(str, in_the_way[:1]))
    return sorted(found)
