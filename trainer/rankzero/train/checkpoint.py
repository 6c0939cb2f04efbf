"""Checkpoints that are whole or not there, for state that every rank holds alike (DDP).

A checkpoint is written under a temporary name, synced, completed by its manifest, then renamed. Only a folder
whose manifest matches its files is ever loaded. What has just been written is never deleted: retention counts
from there backwards, and what claims to be newer goes, since a run that saves step S went on from before it.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

import rankzero
from rankzero import contract, heartbeat
from rankzero.errors import CheckpointError
from rankzero.files import read_json, sync_folder, write_json
from rankzero.heartbeat import Phase

STATE_FILE = "state.pt"
NAME = re.compile(r"step-(\d{10})$")


class Checkpoints:
    """The checkpoints of one run. All methods but :meth:`save` and :meth:`load_latest` are local."""

    def __init__(self, state_dir: Path, *, keep: int) -> None:
        self.state_dir = state_dir
        self.folder = state_dir / contract.CHECKPOINTS_DIR
        self.keep = keep
        heartbeat.current().saved(0)

    def save(self, step: int, state: dict[str, Any], *, final: bool = False) -> bool:
        """Write a checkpoint after ``step`` optimizer steps; True, on every rank, where that worked.

        Every rank calls it: the random states of all ranks go in, rank 0 writes, and all return when the
        checkpoint is durable. ``state`` is taken from rank 0. Where writing fails, rank 0 says so and the training
        goes on: the volume may have room again by the next time. Only the ``final`` one, after which the run's result
        would be lost, raises :class:`CheckpointError`, on all ranks.
        """
        with heartbeat.current().phase(Phase.CHECKPOINT):
            return self._save(step, state, final)

    def _save(self, step: int, state: dict[str, Any], final: bool) -> bool:
        states: list[Any] = [None] * dist.get_world_size()
        dist.gather_object(random_state(), states if dist.get_rank() == 0 else None)
        problem = [""]
        if dist.get_rank() == 0:
            try:
                self._write(step, {**state, "step": step, "random": states})
            except OSError as error:
                problem = [f"{error.strerror or error}: {error.filename or self.folder}"]
            else:
                self._remove_all_but(step)
        dist.broadcast_object_list(problem)
        if not problem[0]:
            heartbeat.current().saved(step)
            return True
        failure = CheckpointError(
            f"the checkpoint of step {step} could not be written: {problem[0]}",
            hint="is the checkpoint volume full? checkpoints.size and train.checkpoint.keep set the room it needs",
        )
        if final:
            raise failure
        if dist.get_rank() == 0:
            print(
                f"warning: {failure}\n  training goes on; until a save succeeds, a restart loses more steps", flush=True
            )
        return False

    def load_latest(self, device: torch.device) -> dict[str, Any] | None:
        """Load the newest good checkpoint on every rank; None where there is none. Every rank calls it.

        Rank 0 verifies and chooses, so that all ranks load the same one; this rank's random state is restored
        where the world has the size it had.
        """
        chosen = [self._newest_good() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(chosen)
        if chosen[0] is None:
            heartbeat.current().saved(0)
            return None
        state: dict[str, Any] = torch.load(
            self.state_dir / chosen[0] / STATE_FILE, map_location=device, weights_only=True
        )
        randoms = state.pop("random")
        if len(randoms) == dist.get_world_size():
            restore_random_state(randoms[dist.get_rank()])
        heartbeat.current().saved(state["step"])
        return state

    def verify(self, path: Path) -> str:
        """Why a checkpoint cannot be trusted; an empty text where it can."""
        try:
            manifest = read_json(path / contract.MANIFEST_FILE)
            if manifest is None:
                return "it has no manifest"
            return _mismatch(path, manifest["files"])
        except OSError as error:
            return f"it cannot be read: {error.strerror or error}: {error.filename or path}"
        except ValueError:
            return "its manifest is not JSON"
        except (KeyError, TypeError, AttributeError):
            return "its manifest has another form"

    def __iter__(self) -> Iterator[Path]:
        """All finished checkpoints, newest first."""
        found = [path for path in self.folder.glob("step-*") if NAME.search(path.name)]
        return iter(sorted(found, key=lambda path: path.name, reverse=True))

    def _newest_good(self) -> str | None:
        for path in self:
            if not (problem := self.verify(path)):
                return str(path.relative_to(self.state_dir))
            print(f"checkpoint {path.name} is left out: {problem}", flush=True)
        return None

    def _write(self, step: int, state: dict[str, Any]) -> None:
        for leftover in self.folder.glob(".step-*"):  # of a save that was killed; it may hold much of the volume
            shutil.rmtree(leftover)
        final = self.state_dir / contract.checkpoint_dir(step)
        temporary = final.with_name(f".{final.name}.tmp")
        temporary.mkdir(parents=True)
        try:
            self._fill(temporary, step, state)
            if final.exists():  # a step that was trained again after a resume from an older checkpoint
                final.rename(final.with_name(f".{final.name}.old"))
            temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # on a full volume it is in the way of the next one
            raise
        sync_folder(self.folder)

    def _fill(self, folder: Path, step: int, state: dict[str, Any]) -> None:
        file = folder / STATE_FILE
        with file.open("wb") as out:
            _save(state, out)
            out.flush()
            os.fsync(out.fileno())
        manifest = {
            "step": step,
            "world_size": dist.get_world_size(),
            "versions": {"rankzero": rankzero.__version__, "torch": torch.__version__},
            "files": {STATE_FILE: {"size": file.stat().st_size, "sha256": _sha256(file)}},
        }
        write_json(folder / contract.MANIFEST_FILE, manifest)

    def _remove_all_but(self, step: int) -> None:
        """Remove what is not among the newest ``keep`` up to ``step``, and what that step has replaced."""
        newest = (self.state_dir / contract.checkpoint_dir(step)).name
        kept = [path for path in self if path.name <= newest][: self.keep]
        for path in [*self.folder.glob(".step-*"), *(path for path in self if path not in kept)]:
            try:
                shutil.rmtree(path)
            except OSError as error:  # no reason to end a run whose checkpoint is safe
                print(f"checkpoint {path.name} could not be removed: {error.strerror or error}", flush=True)


def random_state() -> dict[str, Any]:
    """The states of this rank's generators, as plain data that ``weights_only`` loading accepts."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(internal), gauss], "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Undo what has been drawn since :func:`random_state`."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())


def _save(state: dict[str, Any], out: BinaryIO) -> None:
    """torch.save, but a full volume is the OSError that it is: torch's writer puts a RuntimeError of its own on top."""
    try:
        torch.save(state, out)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _mismatch(folder: Path, files: dict[str, dict[str, Any]]) -> str:
    """How the files in ``folder`` differ from what its manifest says of them."""
    if STATE_FILE not in files:
        return f"its manifest does not name {STATE_FILE}"
    for name, wanted in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if (size := file.stat().st_size) != wanted["size"]:
            return f"{name} has {size} bytes, not {wanted['size']}"
        if _sha256(file) != wanted["sha256"]:
            return f"{name} does not match its checksum"
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
