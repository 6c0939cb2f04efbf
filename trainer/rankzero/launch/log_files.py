"""Files on the checkpoint volume that keep what workers print."""

from __future__ import annotations

import os
from pathlib import Path

from rankzero.launch.background import BackgroundWriter
from rankzero.launch.lines import Lines


class LogFile(Lines):
    """One file that lines are appended to, up to ``limit`` bytes, beyond which they do not count as lost."""

    def __init__(self, path: Path, limit: int, writer: BackgroundWriter) -> None:
        super().__init__(writer, self._open, "the checkpoint volume does not keep up")
        self.path = path
        self._limit = limit
        self._taken = 0

    def write(self, lines: bytes) -> bool:
        """See :class:`Lines`."""
        if self._taken >= self._limit:
            return False
        beyond = len(lines) > (room := self._limit - self._taken)
        if beyond:
            kept = lines[: lines.rfind(b"\n", 0, room) + 1]
            lines = kept + b"-- cut here: launch.logFileLimit is %d MiB --\n" % (self._limit // 2**20)
        taken = super().write(lines)
        if beyond:
            self._taken = self._limit
        elif taken:
            self._taken += len(lines)
        return taken

    def close(self) -> None:
        """Nothing more is written. Never blocks; :meth:`BackgroundWriter.flush` waits for it."""
        self.end()
        self._writer.offer(0, self._close)

    # --- In the writer's thread --------------------------------------------------------------------------

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _close(self) -> None:
        if self._descriptor < 0:
            return
        try:
            os.close(self._descriptor)  # where a file server reports what it could not store
        except OSError as error:
            self.reason = error.strerror or str(error)
        self._descriptor = -1
