"""Where everything that is built or fetched is kept: one folder of the user's."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
"""The repository's root."""


def cache_dir(*parts: str) -> Path:
    """``RANKZERO_CACHE``, else ``rankzero`` in ``XDG_CACHE_HOME`` or ``~/.cache``; ``parts`` below it, created."""
    root = os.environ.get("RANKZERO_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rankzero")
    path = Path(root).expanduser().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path
