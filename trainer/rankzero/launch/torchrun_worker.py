"""What torchrun starts in the place of the training script: it becomes the script, with an output of its own.

The process stays the same, so torchrun sees the script's own end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ENV_FOLDER = "RANKZERO_TORCHRUN_FOLDER"
"""Where the launcher has laid out what each rank needs."""


def environment_file(folder: Path, rank: int) -> Path:
    """JSON: the variables in which a rank differs from the others."""
    return folder / f"rank-{rank}-environment.json"


def output_pipe(folder: Path, rank: int) -> Path:
    """A named pipe that the launcher reads: first a line with the worker's pid, then what the worker prints."""
    return folder / f"rank-{rank}-output"


def main() -> None:
    """Runs on every rank; the arguments are the script and its own."""
    folder, rank = Path(os.environ.pop(ENV_FOLDER)), int(os.environ["RANK"])
    for name, value in json.loads(environment_file(folder, rank).read_text(encoding="utf-8")).items():
        os.environ.setdefault(name, value)  # what torchrun has set stays
    output = os.open(output_pipe(folder, rank), os.O_WRONLY)
    os.write(output, b"%d\n" % os.getpid())
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.execv(sys.executable, [sys.executable, "-u", *sys.argv[1:]])  # noqa: S606 -- an argument list, no shell


if __name__ == "__main__":
    main()
