"""Where everything that is built or fetched is kept: one folder of the user's. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
"""The repository's root."""

MARKER = "CACHEDIR.TAG"
MARKER_TEXT = """\
Signature: 8a477f597d28d172789f06886806bc55
# The cache folder of rankzero, which alone writes here. `make clean-cache` removes the whole folder.
# About this file: https://bford.info/cachedir/
"""


class CacheFolderError(Exception):
    """The cache folder cannot be used; the message is a sentence with the fix."""


def cache_root() -> Path:
    """``RANKZERO_CACHE``, else ``rankzero`` in ``XDG_CACHE_HOME`` or ``~/.cache``; absolute, perhaps not there yet."""
    named = os.environ.get("RANKZERO_CACHE")
    path = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rankzero")
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise CacheFolderError(f"There is no home folder for {path}: set RANKZERO_CACHE to a folder.") from error


def cache_dir(*parts: str) -> Path:
    """A folder below the cache folder, created. Raises :class:`CacheFolderError`."""
    path = claim().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def claim() -> Path:
    """The cache folder, created and marked as ours, so that it may later be removed as a whole.

    Raises :class:`CacheFolderError` where it cannot be written or holds files of somebody else.
    """
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Listed before the marker is read: another process of ours writes its marker before anything else.
        others = [entry.name for entry in root.iterdir() if entry.name != MARKER]
        if not _is_marked(root):
            if others and os.environ.get("RANKZERO_CACHE"):
                raise CacheFolderError(
                    f"RANKZERO_CACHE is {root}, which already holds {others[0]} and is not a cache of ours: "
                    f"name a folder of its own, such as {root / 'rankzero'}."
                )
            (root / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
    except OSError as error:
        raise CacheFolderError(
            f"The cache folder {root} cannot be used ({error.strerror}): "
            "set RANKZERO_CACHE to a folder that you may write."
        ) from error
    return root


def _is_marked(root: Path) -> bool:
    marker = root / MARKER
    return marker.exists() and marker.read_text(encoding="utf-8", errors="replace") == MARKER_TEXT
