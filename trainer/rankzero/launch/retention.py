"""What old attempts leave on the checkpoint volume: the records stay, their logs and stacks do not for ever."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from rankzero import contract

FIRST = 1
"""The attempt that is kept whatever its age: it tells how the run began."""


def remove_old(state_dir: Path, newest: int, keep: int) -> None:
    """Remove logs and stacks of attempts, but for those of the first and the last ``keep``. Raises OSError."""
    for attempt, folder in _folders(state_dir):
        if FIRST < attempt <= newest - keep:
            shutil.rmtree(folder)


def _folders(state_dir: Path) -> Iterator[tuple[int, Path]]:
    for name_of in (contract.log_dir, contract.evidence_dir):
        for folder in (state_dir / name_of(0)).parent.glob("*"):
            digits = folder.name.rpartition("-")[2]
            if digits.isdecimal() and folder == state_dir / name_of(int(digits)) and folder.is_dir():
                yield int(digits), folder
