"""Runs programs of the node beside each other, within one time limit."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

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


class _Started(NamedTuple):
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]


def find(program: str) -> str | None:
    """The path of a program, None where the node does not have it."""
    return shutil.which(program, path=PATH)


def run(commands: Mapping[str, Sequence[str]], limit: float) -> dict[str, Answer]:
    """Run all ``commands`` at once and return their answers by the same keys, after at most ``limit`` seconds.

    A program that hangs in the kernel, as nvidia-smi does on a GPU that fell off the bus, cannot be killed. It is left
    behind: files instead of pipes, so that nobody waits for it to close its end.
    """
    answers: dict[str, Answer] = {}
    started: dict[str, _Started] = {}
    for key, (program, *arguments) in commands.items():
        path = find(program)
        if path is None:
            answers[key] = Answer(None, "", f"{program} is not installed")
            continue
        try:
            started[key] = _start([path, *arguments])
        except OSError as error:
            answers[key] = Answer(None, "", f"{program} does not start: {error.strerror}")
    end = time.monotonic() + limit
    while time.monotonic() < end and any(item.process.poll() is None for item in started.values()):
        time.sleep(POLL)
    answers.update({key: _answer(commands[key], item, limit) for key, item in started.items()})
    return answers


def _start(command: Sequence[str]) -> _Started:
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    environment = {"PATH": PATH, "LC_ALL": "C"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
    )
    return _Started(process, output, errors)


def _answer(command: Sequence[str], started: _Started, limit: float) -> Answer:
    name = " ".join(command)
    if started.process.poll() is None:
        started.process.kill()
        return Answer(None, "", f"`{name}` did not answer within {limit:g} s")
    output, errors = _text(started.output), _text(started.errors)
    status = started.process.returncode
    if status == 0:
        return Answer(0, output, "")
    said = " ".join((errors.strip() or output.strip()).split())
    return Answer(status, output, f"`{name}` ended with status {status}: {said[:300]}")


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")
