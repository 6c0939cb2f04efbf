"""Where the checkpoints of a run lie: the finished ones, what is being written, and which is the latest.

A checkpoint is written under a hidden name and renamed when it is whole, so a folder called ``step-*`` was complete
once. Hidden names are leftovers of saves that were killed, or wait to be deleted.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from rankzero import contract
from rankzero.files import sync_folder, write_json

NAME = re.compile(r"step-(\d{10})$")
WRITTEN, REPLACED, DELETED = "tmp", "old", "gone"
"""Endings of hidden folders."""


def step_of(path: Path) -> int:
    """The step after which this checkpoint was taken."""
    found = NAME.search(path.name)
    assert found is not None, path
    return int(found[1])


class Layout:
    """The folder of a run's checkpoints. Rank 0 alone changes it, but for the files inside :meth:`begin`'s folder."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.folder = state_dir / contract.CHECKPOINTS_DIR

    def finished(self) -> list[Path]:
        """All finished checkpoints, newest first."""
        found = [path for path in self.folder.glob("step-*") if NAME.search(path.name)]
        return sorted(found, key=step_of, reverse=True)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is when it is finished."""
        return self.state_dir / contract.checkpoint_dir(step)

    def unfinished(self, step: int) -> Path:
        """Where it is while it is written: each attempt has its own, since one may live on where a node is cut off."""
        return self._hidden(self.path(step), f"{os.environ.get(contract.ENV_ATTEMPT, 1)}.{WRITTEN}")

    def leftovers(self) -> list[Path]:
        """Unfinished and replaced ones; they may hold much of the volume."""
        return sorted(self.folder.glob(".step-*"))

    def restore(self) -> None:
        """Give a replaced checkpoint its name again where :meth:`publish` was killed before the new one got it."""
        for replaced in self.folder.glob(f".step-*.{REPLACED}"):
            final = replaced.with_name(replaced.name[1:].removesuffix(f".{REPLACED}"))
            with suppress(OSError):  # then it is as lost as it was
                if not final.exists():
                    replaced.rename(final)

    def make_room(self) -> None:
        """Remove leftovers, as far as that is possible: a file that somebody still reads keeps its folder on NFS."""
        for leftover in self.leftovers():
            shutil.rmtree(leftover, ignore_errors=True)

    def begin(self, step: int) -> None:
        """Make an empty folder to write into. Raises OSError."""
        folder = self.unfinished(step)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)

    def publish(self, step: int) -> None:
        """What has been written becomes the checkpoint of its step, and the latest one. Raises OSError."""
        final = self.path(step)
        if final.exists():  # a step that was trained again after a resume from an older checkpoint
            final.rename(self._hidden(final, REPLACED))
        self.unfinished(step).rename(final)
        sync_folder(self.folder)
        write_json(self.folder / contract.LATEST_FILE, {"checkpoint": final.name, "step": step})

    def remove(self, path: Path) -> None:
        """Delete a checkpoint or a leftover. Raises OSError.

        A deletion that is killed half-way leaves a hidden name, not a checkpoint that looks damaged.
        """
        if NAME.search(path.name):
            hidden = self._hidden(path, DELETED)
            path.rename(hidden)
            path = hidden
        if path.is_symlink() or not path.is_dir():  # put there by hand; what a link leads to is somebody else's
            path.unlink()
        else:
            shutil.rmtree(path)

    @staticmethod
    def _hidden(path: Path, ending: str) -> Path:
        return path.with_name(f".{path.name}.{ending}")
