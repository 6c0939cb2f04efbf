"""The folder of a run on a disk of its own node, and which ranks share it."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from rankzero import contract
from rankzero.errors import ConfigError
from rankzero.files import read_json, write_json
from rankzero.train.checkpoint.layout import Layout
from rankzero.train.checkpoint.peers import Peers

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Node:
    """One rank's place among those that share its folder."""

    layout: Layout
    rank: int
    together: list[int]
    """All ranks of the node."""

    @property
    def index(self) -> int:
        """The rank's place among those of its node."""
        return self.together.index(self.rank)

    @property
    def is_first(self) -> bool:
        """True on one rank of each node: the one that changes the folder. Rank 0 is one of these."""
        return self.index == 0

    @classmethod
    def meet(cls, root: Path, shared: Layout, peers: Peers) -> Node | None:
        """Make the run's folder below ``root``, and find who has the same one. Every rank calls it.

        The folder's name is drawn once a run and kept beside the run's checkpoints: what another run, of the same name
        perhaps, has left on a node is never taken for one's own. Raises :class:`ConfigError` on all ranks where a rank
        cannot use its folder; in later attempts, when a disk may have failed, that is said and the answer is None.
        """
        name, problem = peers.broadcast(_name(shared) if peers.is_first else ("", ""))
        key: tuple[str, int, int] = ("", 0, 0)
        if not problem:
            key, problem = _made(root / name)
        found = peers.share((key, problem))
        if told := [f"rank {rank}: {said}" for rank, (_, said) in enumerate(found) if said]:
            _refuse(root, told[0], peers)
            return None
        together = [rank for rank, (other, _) in enumerate(found) if other == key]
        node = cls(Layout(root / name), peers.rank, together)
        if node.is_first:
            _remove_former(root, name)
        return node


def owner() -> str:
    """Whose folders are whose, below a path that several runs may share; empty where no launcher says so."""
    names = (contract.ENV_NAMESPACE, contract.ENV_RUN_NAME, contract.ENV_RUN_ID)
    parts = [os.environ.get(name, "") for name in names]
    return "_".join([*parts, ""]) if all(parts) else ""  # no name of Kubernetes has an underscore


def _name(shared: Layout) -> tuple[str, str]:
    file = shared.folder / contract.LOCAL_FILE
    try:
        known = read_json(file, damaged_is_absent=True)
        if known is None:
            known = {"folder": f"{owner()}{secrets.token_hex(8)}"}
            write_json(file, known)
        return str(known["folder"]), ""
    except OSError as error:
        return "", f"{error.strerror or error}: {error.filename or file}"


def _made(folder: Path) -> tuple[tuple[str, int, int], str]:
    """What tells the folder from that of every other node, and why it cannot be used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".{secrets.token_hex(8)}"
        probe.touch()
        probe.unlink()
        status = folder.stat()
        return (BOOT_ID.read_text().strip(), status.st_dev, status.st_ino), ""
    except OSError as error:
        return ("", 0, 0), f"{error.strerror or error}: {error.filename or folder}"


def _refuse(root: Path, problem: str, peers: Peers) -> None:
    message = f"train.checkpoint.localPath is {root}, which cannot be used: {problem}"
    if int(os.environ.get(contract.ENV_ATTEMPT, 1)) == 1:
        raise ConfigError(
            message, hint="it must be writable for the trainer's user on every node; empty writes to the shared folder"
        )
    if peers.is_first:
        print(f"warning: {message}\n  checkpoints are written to the shared folder at once", flush=True)


def _remove_former(root: Path, name: str) -> None:
    """Folders of earlier runs of this very name, whose own state is gone."""
    if prefix := owner():
        for folder in root.glob(f"{prefix}*"):
            if folder.name != name:
                shutil.rmtree(folder, ignore_errors=True)
