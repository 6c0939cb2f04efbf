"""Run the playbooks as a person does, and read what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.cache import REPO


@dataclass(frozen=True)
class Run:
    """What a run has told."""

    status: int
    output: str

    @property
    def begun(self) -> list[str]:
        """The batches, in their order."""
        return list(dict.fromkeys(self._after("begun with ")))

    @property
    def ended(self) -> set[str]:
        """The nodes that came to the end."""
        return set(self._after("ended "))

    @property
    def withdrawn(self) -> list[str]:
        """The nodes whose label was taken."""
        return sorted(self._after("withdraw "))

    @property
    def summary(self) -> dict[str, str]:
        """The last word on each node."""
        _, _, text = self.output.partition("\nNODES ")
        rows = (line.split() for line in text.partition("\n\n")[0].splitlines()[1:])
        return {name: " ".join(words) for name, *words in rows}

    @property
    def states(self) -> list[str]:
        """The first word of the last word on each node."""
        return [told.partition(" ")[0] for told in self.summary.values()]

    def _after(self, word: str) -> list[str]:
        return [line.partition(word)[2] for line in self.output.splitlines() if word + "node-" in line]


def ansible_playbook(playbook: Path, inventory: Path, *words: str, env: Mapping[str, str] | None = None) -> Run:
    """Run a playbook from the repository's root to its end, whatever that is."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "--inventory", inventory, playbook, *words],
        cwd=REPO,
        env={**os.environ, **(env or {}), "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout)
