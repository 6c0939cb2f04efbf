"""What workers print: to the pod's log, to files on the checkpoint volume, and the last lines for failure records."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch import stdout
from rankzero.launch.background import BackgroundWriter
from rankzero.launch.log_files import LogFile
from rankzero.launch.protocol import WorkerFailed

LAST_LINES, LAST_LINE_LENGTH = 50, 300
"""Lines of a worker's output that its failure record keeps, and characters of each (a message has a size limit)."""
FLUSH_WITHIN = 3.0
"""Seconds that the end of an attempt waits for the volume."""
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and control characters: each takes up to six bytes in a message, and none says anything in a record."""


class Log:
    """The output of one process in one attempt; ``mark`` says whose lines these are."""

    def __init__(self, mark: str, *, on_stdout: bool, file: LogFile | None = None) -> None:
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._on_stdout = on_stdout
        self._mark = f" [{mark}] "
        self._file = file

    def write(self, lines: bytes) -> None:
        """Take whole lines, the last one without its line end. Never waits for who takes them."""
        self.last_lines.extend(plain(line) for line in lines.rsplit(b"\n", LAST_LINES)[-LAST_LINES:])
        mark = (time.strftime("%H:%M:%S") + self._mark).encode()
        marked = mark + lines.replace(b"\n", b"\n" + mark) + b"\n"
        if self._on_stdout:
            stdout.write(marked)
        if self._file is not None:
            self._file.write(marked)


class Logs:
    """Routes the output of a pod's workers, attempt after attempt. ``say`` prints a line for a person."""

    def __init__(self, launch: LaunchConfig, state_dir: Path, say: Callable[[str], None]) -> None:
        self._all_on_stdout = launch.log_ranks == "all"
        self._limit = launch.log_file_limit * 2**20
        self._state_dir = state_dir
        self._say = say
        self._writer = BackgroundWriter("logs")
        self._files: list[LogFile] = []

    def open(self, attempt: int, rank: int) -> Log:
        """The log of one worker that is about to start."""
        file = None
        if self._limit:
            file = LogFile(self._state_dir / contract.log_file(attempt, rank), self._limit, self._writer)
            self._files.append(file)
        return Log(f"attempt {attempt} rank {rank}", on_stdout=self._all_on_stdout or rank == 0, file=file)

    async def close(self) -> None:
        """The workers have ended: complete their files, in bounded time, and say what they lack."""
        files, self._files = self._files, []
        if not files:
            return
        for file in files:
            file.close()
        flushed = await self._writer.flush(FLUSH_WITHIN)
        where = files[0].path.parent
        if not flushed:
            self._say(f"the checkpoint volume did not take all output within {FLUSH_WITHIN:g} s; {where} is incomplete")
        elif reason := next((file.reason for file in files if file.reason), ""):
            self._say(f"{sum(file.lost for file in files)} lines of output are not in {where}: {reason}")

    def show_end(self, failure: WorkerFailed) -> None:
        """Print the last lines of a failed worker whose output is not in the pod's log anyway."""
        if self._all_on_stdout or failure.rank == 0 or not failure.last_lines:
            return
        self._say(f"the end of what rank {failure.rank} printed:")
        mark = f"{time.strftime('%H:%M:%S')} [attempt {failure.attempt} rank {failure.rank} last lines] "
        stdout.write("".join(f"{mark}{line}\n" for line in failure.last_lines).encode(errors="replace"))


def plain(line: bytes) -> str:
    """A line as a terminal would leave it: what follows the last carriage return, without colours, not too long."""
    text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
    return without_controls(text)[:LAST_LINE_LENGTH]


def without_controls(text: str) -> str:
    """The text without colours and control characters, line ends and tabs aside."""
    return _CONTROLS.sub("", text)
