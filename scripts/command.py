"""Run other programs: no shell, output kept in a log, a readable error with its last lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankzero.errors import RankzeroError

TAIL_LINES = 15


class CommandError(RankzeroError):
    """A program ended with a status other than 0, or could not be started.

    ``status`` is its exit status, None where it has none.
    """

    def __init__(self, message: str, *, hint: str = "", status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    log: Path | None = None,
    timeout: float | None = None,
    hint: str = "",
) -> str:
    """Run ``command`` and return its standard output; bytes that are no UTF-8 come as surrogates, line ends as written.

    ``env`` is added to the present environment; ``timeout`` is in seconds. With ``log`` both streams are
    appended to that file instead of being returned. Raises :class:`CommandError` with the last lines of output.
    """
    words = [str(word) for word in command]
    environment = {**os.environ, **(env or {})}
    try:
        if log:
            return _run_logged(words, environment, cwd, stdin, log, timeout, hint)
        done = subprocess.run(
            words,
            env=environment,
            cwd=cwd,
            input=None if stdin is None else stdin.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{words[0]} is not installed", hint=hint or f"install {words[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"`{' '.join(words)}` did not end within {timeout:g} s", hint=hint) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")
        raise CommandError(_failure(words, done.returncode, said), hint=hint, status=done.returncode)
    return done.stdout.decode(errors="surrogateescape")


def tied(words: Sequence[str | Path]) -> list[str]:
    """``words`` for a program that the kernel kills when this process has ended, however that came."""
    return ["setpriv", "--pdeathsig", "KILL", *map(str, words)]


def _run_logged(
    words: list[str],
    environment: dict[str, str],
    cwd: Path | None,
    stdin: str | None,
    log: Path,
    timeout: float | None,
    hint: str,
) -> str:
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(words)}\n")
        out.flush()
        start = log.stat().st_size
        done = subprocess.run(
            words,
            env=environment,
            cwd=cwd,
            input=stdin,
            stdout=out,
            stderr=out,
            text=True,
            timeout=timeout,
            check=False,
        )
    if done.returncode:
        with log.open(encoding="utf-8", errors="replace") as written:
            written.seek(start)
            text = written.read()
        raise CommandError(
            _failure(words, done.returncode, text.strip()),
            hint=hint or f"the whole output is in {log}",
            status=done.returncode,
        )
    return ""


def _failure(words: list[str], status: int, output: str) -> str:
    tail = "\n".join(f"    {line}" for line in output.splitlines()[-TAIL_LINES:])
    return f"`{' '.join(words)}` ended with status {status}:\n{tail}"
