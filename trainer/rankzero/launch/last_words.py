"""What a launcher leaves for the next start of its container, in case it does not get to say it itself.

Where the kernel kills all processes of a container that runs out of memory, the launcher is among them. So it keeps a
small file on a volume that outlives the container but not the pod, and removes it when it ends in order.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rankzero.files import read_json, write_json
from rankzero.launch.memory import Cgroup, size

EVERY = 1.0
"""Seconds between two writes."""


class LastWords:
    """Of one pod; ``attempt`` gives the number of the attempt that its workers belong to, 0 without workers."""

    def __init__(self, pod_uid: str, cgroup: Cgroup | None, attempt: Callable[[], int]) -> None:
        self._path = Path(tempfile.gettempdir()) / f"rankzero-last-words-{pod_uid}.json"
        self._cgroup = cgroup
        self._attempt = attempt
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="last words", daemon=True)
        self.before = self._heard()
        """A sentence about the launcher before this one that was killed; empty at a pod's first start."""

    def start(self) -> None:
        """Keep the file up to date from a thread: a node's disk may be slow, and its memory short."""
        if self._cgroup is not None:
            self._thread.start()

    def stop(self) -> None:
        """This launcher ends in order and says itself why."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(EVERY)
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _keep(self) -> None:
        assert self._cgroup is not None
        while not self._ending.wait(EVERY):
            if (memory := self._cgroup.memory()) is not None:
                document = {**vars(memory), "attempt": self._attempt(), "time": time.time()}
                with contextlib.suppress(OSError):
                    write_json(self._path, document, durable=False)

    def _heard(self) -> str:
        try:
            said = read_json(self._path, damaged_is_absent=True)
        except OSError:
            return ""
        if not said:
            return ""
        if said["limit"]:
            return f"memory was at {100 * said['in_use'] / said['limit']:.0f} % of {size(said['limit'])} when last seen"
        return f"memory was at {size(said['in_use'])}, without a limit, when last seen"
