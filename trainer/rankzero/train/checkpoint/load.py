"""From a verified checkpoint back into live objects, on any number of ranks."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from rankzero.errors import CheckpointError
from rankzero.train.checkpoint import randomness
from rankzero.train.checkpoint.peers import Peers
from rankzero.train.checkpoint.tracked import RANDOM, STEP, Tracked
from rankzero.train.checkpoint.write import COMMON_FILE

Entries = dict[str, Any]


class Loader:
    """Loads parts of one checkpoint. Every rank makes one and calls its methods in the same order."""

    def __init__(self, folder: Path, tracked: Tracked, *, strict: bool, peers: Peers) -> None:
        self.folder, self.tracked, self.strict, self.peers = folder, tracked, strict, peers
        stored = torch.load(folder / COMMON_FILE, map_location="cpu", weights_only=True)
        self.own: list[dict[str, Any]] = stored["own"]
        self.common: dict[str, Any] = torch.load(io.BytesIO(stored["common"]), weights_only=True)
        self.reader = FileSystemReader(folder)
        self.metadata: Metadata = self.reader.read_metadata()

    @property
    def step(self) -> int:
        """After how many optimizer steps the checkpoint was taken."""
        return int(self.common[STEP])

    def load(self, parts: Iterable[str]) -> None:
        """Restore ``parts``. Raises :class:`CheckpointError`, by name, for what is missing or does not fit."""
        wanted = list(parts)
        tracked = self.tracked
        for name in [name for name in wanted if name in tracked.modules]:
            self._load_module(name)
        for name in [name for name in wanted if name in tracked.optimizers]:
            self._load_optimizer(name)
        for name in [name for name in wanted if name in tracked.objects]:
            if self._has(name, self.common["objects"]):
                tracked.objects[name].load_state_dict(self.common["objects"][name])
        for name in [name for name in wanted if name in tracked.own]:
            if self._has(name, self.own[0]):
                self._check_world(name)
                tracked.own[name].load_state_dict(self.own[self.peers.rank][name])
        if RANDOM in wanted and len(self.own) == self.peers.size:
            randomness.restore(self.own[self.peers.rank][RANDOM])

    def _load_module(self, name: str) -> None:
        module = self.tracked.modules[name]
        live = {f"{name}.{key}": value for key, value in get_model_state_dict(module).items()}
        loaded = self._read(name, live)
        state = {key.removeprefix(f"{name}."): value for key, value in loaded.items()}
        set_model_state_dict(module, state, options=StateDictOptions(strict=False))

    def _load_optimizer(self, name: str) -> None:
        if not self._has(name, self.common["groups"]):
            return
        optimizer, module = self.tracked.optimizers[name], self.tracked.module_of(name)
        live, groups = self.tracked.optimizer_state(name)
        saved = self.common["groups"][name]
        if len(saved) != len(groups):
            raise self._unfit(f"{name} has {len(saved)} parameter groups there and {len(groups)} here")
        # A parameter that had no gradient yet when it was saved has no state; it stays without.
        prefixes = {key.rpartition(".")[0] for key in self.metadata.state_dict_metadata}
        loaded = self._read(name, {k: v for k, v in live.items() if k.rpartition(".")[0] in prefixes})
        state: dict[str, dict[str, Any]] = {}
        for key, value in loaded.items():
            parameter, _, entry = key.removeprefix(f"{name}.state.").rpartition(".")
            state.setdefault(parameter, {})[entry] = value
        # Half of a parameter's state, as where its shape is another, is none: the optimizer begins it anew.
        wanted = Counter(key.rpartition(".")[0] for key in live)
        whole: dict[str, Any] = {
            "state": {key: part for key, part in state.items() if len(part) == wanted[f"{name}.state.{key}"]},
            "param_groups": [{**here, **group} for group, here in zip(saved, groups, strict=True)],
        }
        set_optimizer_state_dict(module, optimizer, whole, options=StateDictOptions(strict=False))

    def _read(self, part: str, live: Entries) -> Entries:
        """Read what is both wanted and stored into ``live``, each rank the pieces that it holds."""
        stored = self.metadata.state_dict_metadata
        missing = sorted(live.keys() - stored.keys())
        mine = {key for key in stored if key.startswith(f"{part}.")} - live.keys()
        extra = sorted(set.intersection(*self.peers.share(mine)))  # a pipeline's stages have each a part
        wrong = [key for key in sorted(live.keys() & stored.keys()) if not _fits(live[key], stored[key])]
        problems = [f"{key} is not in it" for key in missing] + [f"{key} is not in the model" for key in extra]
        problems += [f"{key} is {tuple(stored[key].size)} there and {tuple(live[key].shape)} here" for key in wrong]  # type: ignore[union-attr]
        told = self.peers.first_said(problems)
        if told and self.strict:
            raise self._unfit("; ".join(told[:5]) + (f"; and {len(told) - 5} more" if len(told) > 5 else ""))
        if told and self.peers.is_first:
            print(f"{part}: loaded what fits; {len(told)} entries do not, first {told[0]}", flush=True)
        entries = {key: value for key, value in live.items() if key in stored and key not in wrong}
        read(entries, self.reader, self.metadata)
        return entries

    def _has(self, name: str, stored: Mapping[str, Any]) -> bool:
        if name in stored:
            return True
        if self.strict:
            raise self._unfit(f"it has no part {name!r}")
        return False

    def _check_world(self, name: str) -> None:
        if len(self.own) != self.peers.size:
            raise CheckpointError(
                f"{self.folder.name} was written by {len(self.own)} ranks, and the part {name!r}, which each rank has "
                f"for itself, cannot be split anew for {self.peers.size}",
                hint=f"run with {len(self.own)} ranks, or leave {name} out of train.resume.parts",
            )

    def _unfit(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.folder} does not fit what is trained: {what}",
            hint="set train.resume.strict to false to load what fits, or begin another run with parts of it: "
            "train.resume.from and parts",
        )


def read(entries: Entries, reader: FileSystemReader, metadata: Metadata) -> None:
    """Read ``entries`` by name, in place: of each tensor the piece that this rank holds. No rank needs another."""
    planner = _planner(entries, metadata)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    [plan] = planner.create_global_plan([planner.create_local_plan()])
    reader.read_data(planner.finish_plan(plan), planner).wait()


def ranges(folder: Path, tracked: Tracked) -> dict[str, set[tuple[int, int]]]:
    """The parts of each file, offset and length in bytes, that this rank is going to read for all that is tracked."""
    metadata = FileSystemReader(folder).read_metadata()
    stored = metadata.state_dict_metadata
    stepped = [name for name in tracked.optimizers if any(key.startswith(f"{name}.state.") for key in stored)]
    live = tracked.entries(stepped)
    live = {name: value for name, value in live.items() if name in stored and _fits(value, stored[name])}
    found: dict[str, set[tuple[int, int]]] = {}
    for item in _planner(live, metadata).create_local_plan().items:
        place = metadata.storage_data[item.storage_index]
        found.setdefault(place.relative_path, set()).add((place.offset, place.length))
    return found


def _planner(entries: Entries, metadata: Metadata) -> DefaultLoadPlanner:
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(entries, metadata, is_coordinator=True)
    return planner


def _fits(live: Any, stored: Any) -> bool:
    if isinstance(live, Tensor) != isinstance(stored, TensorStorageMetadata):
        return False
    return not isinstance(live, Tensor) or live.shape == stored.size
