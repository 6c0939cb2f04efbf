"""Runs programs of the node beside each other, within one time limit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import files

POLL = 0.01
"""Seconds between two looks at programs that still run."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for: sudo and SSH give a shorter one on some systems."""


class Answer(NamedTuple):
    """What a program said."""

    status: int | None
    """Exit status; None for one that is not there or did not end in time."""
    output: str
    """Standard output, of a program that ended."""
    problem: str
    """Why there is no output to rely on: a sentence, empty for exit status 0."""


def find(program: str) -> str | None:
    """The path of a program, None where the node does not have it."""
    return shutil.which(program, path=PATH)


def run(commands: Mapping[str, Sequence[str]], limit: float) -> dict[str, Answer]:
    """Run all ``commands`` at once and return their answers by the same keys, after at most ``limit`` seconds.

    A program that hangs in the kernel, as nvidia-smi does on a GPU that fell off the bus, cannot be killed. It is left
    behind: files instead of pipes, so that nobody waits for it to close its end.
    """
    answers: dict[str, Answer] = {}
    started: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for key, (program, *arguments) in commands.items():
            path = find(program)
            if path is None:
                answers[key] = Answer(None, "", f"{program} is not installed")
                continue
            try:
                started[key] = _start([path, *arguments], Path(folder, key))
            except OSError as error:
                answers[key] = Answer(None, "", f"{program} does not start: {error.strerror}")
        end = time.monotonic() + limit
        while time.monotonic() < end and any(process.poll() is None for process in started.values()):
            time.sleep(POLL)
        for key, process in started.items():
            answers[key] = _answer(" ".join(commands[key]), process, Path(folder, key), limit)
    return answers


def hanging(root: Path, program: str, limit: float) -> str:
    """A sentence on a process of ``program`` that has been in the kernel for longer than ``limit``; empty for none.

    One more would hang beside it, and both until the machine boots.
    """
    now = float((files.text(root / "proc/uptime") or "0").split()[0])
    for process in files.entries(root / "proc"):
        if process.name.isdecimal() and files.text(process / "comm") == program:
            # proc_pid_stat(5): the state is the third field, the ticks at which the process started are the 22nd.
            state, *others = files.text(process / "stat").rpartition(")")[2].split() or [""]
            age = now - int(others[18]) / os.sysconf("SC_CLK_TCK") if state == "D" else 0
            if age > limit:
                return f"{program} (process {process.name}) has not come back from the kernel for {age:.0f} s"
    return ""


def _start(command: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    environment = {"PATH": PATH, "LC_ALL": "C"}
    with said.with_suffix(".out").open("wb") as output, said.with_suffix(".err").open("wb") as errors:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
        )


def _answer(command: str, process: subprocess.Popen[bytes], said: Path, limit: float) -> Answer:
    if process.poll() is None:
        process.kill()
        return Answer(None, "", f"`{command}` did not answer within {limit:g} s")
    output, errors = (said.with_suffix(suffix).read_bytes().decode(errors="replace") for suffix in (".out", ".err"))
    if process.returncode == 0:
        return Answer(0, output, "")
    reason = " ".join((errors.strip() or output.strip()).split())
    return Answer(process.returncode, output, f"`{command}` ended with status {process.returncode}: {reason[:300]}")
