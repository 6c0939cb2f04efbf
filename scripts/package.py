"""``python -m scripts.package``: the chart as ``build/rankzero-VERSION.tgz``."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.cache import REPO
from scripts.entry import guarded
from scripts.generate import files, helm

FOLDER = REPO / "build"


def package(folder: Path) -> Path:
    """Package the chart into ``folder`` and return the file. Raises :class:`~scripts.command.CommandError`."""
    folder.mkdir(parents=True, exist_ok=True)
    said = helm.helm("package", files.CHART, "--destination", folder)
    return Path(said.rpartition(": ")[2].strip())


def main() -> int:
    """Says where the package is."""
    sys.stdout.write(f"{package(FOLDER)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
