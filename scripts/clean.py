"""Removes the cache folder: `python3 -m scripts.clean`. Standard library only."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from scripts.cache import MARKER, CacheFolderError, cache_root, claim

WHAT_STAYS = """\
What stays:
  .venv and build/ of this checkout    rm -rf .venv build
  trainer images and their base        podman images localhost/rankzero/*    lists them, podman rmi removes them
"""


def main() -> int:
    """Returns the exit status: 1, and nothing removed, while the local cluster uses the folder or it is not ours."""
    try:
        if not cache_root().exists():
            sys.stderr.write(f"There is no cache folder {cache_root()}.\n")
            return 0
        cache = claim()
    except CacheFolderError as error:
        sys.stderr.write(f"error: nothing was removed. {error}\n")
        return 1
    if Path(cache, "lab").exists():
        sys.stderr.write(f"error: the local cluster runs from {cache}\n  fix: run `make lab-down` first\n")
        return 1
    before = shutil.disk_usage(cache).free
    _remove(cache)
    freed = (shutil.disk_usage(cache.parent).free - before) / 1e9
    sys.stderr.write(f"Removed {cache}: {freed:.1f} GB freed.\n{WHAT_STAYS}")
    return 0


def _remove(cache: Path) -> None:
    for folder, _, _ in os.walk(cache):
        # Go's module cache is read-only, also for its owner.
        Path(folder).chmod(0o700)
    for entry in cache.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()
    # Last, so that what an interrupted removal left is still known as ours.
    (cache / MARKER).unlink()
    if not cache.is_symlink() and not cache.is_mount():
        cache.rmdir()


if __name__ == "__main__":
    sys.exit(main())
