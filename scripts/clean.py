"""Removes the cache folder: `python3 -m scripts.clean`. Standard library only."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from scripts.cache import cache_dir


def main() -> int:
    """Returns the exit status: 1, and nothing removed, while the local cluster still uses the folder."""
    cache = cache_dir()
    if Path(cache, "lab").exists():
        sys.stderr.write(f"error: the local cluster runs from {cache}\n  fix: run `make lab-down` first\n")
        return 1
    before = shutil.disk_usage(cache).free
    for folder, _, _ in os.walk(cache):
        # Go's module cache is read-only, also for its owner.
        Path(folder).chmod(0o700)
    shutil.rmtree(cache)
    freed = (shutil.disk_usage(cache.parent).free - before) / 1e9
    sys.stderr.write(f"Removed {cache}: {freed:.1f} GB freed.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
