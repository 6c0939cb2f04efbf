"""Stand-ins for podman and buildah: they answer as told, and note how they were called."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = """\
#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
call = " ".join([pathlib.Path(__file__).name, *sys.argv[1:]])
with (here / "calls").open("a") as calls:
    calls.write(call + "\\n")
answers = json.loads((here / "answers").read_text())
matching = [queue for prefix, queue in answers.items() if call.startswith(prefix)]
status, output = (matching[0].pop(0) if len(matching[0]) > 1 else matching[0][0]) if matching else (0, "")
(here / "answers").write_text(json.dumps(answers))
(sys.stderr if status else sys.stdout).write(output)
sys.exit(status)
"""


@dataclass
class FakePrograms:
    """Programs in a folder that a test puts on the PATH."""

    folder: Path
    answers: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def install(self, *names: str) -> None:
        """Write the programs."""
        self.folder.mkdir(exist_ok=True)
        for name in names:
            program = self.folder / name
            program.write_text(SCRIPT.format(python=sys.executable), encoding="utf-8")
            program.chmod(0o755)
        self._save()

    def answer(self, call: str, *answers: tuple[int, str]) -> None:
        """Status and output for calls that begin with ``call``, one after the other; the last stays."""
        self.answers[call] = list(answers)
        self._save()

    def calls(self) -> list[str]:
        """The command lines so far."""
        file = self.folder / "calls"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def _save(self) -> None:
        (self.folder / "answers").write_text(json.dumps(self.answers), encoding="utf-8")
