"""Memory of the launcher's own container, from its cgroup: was a killed process killed for it, and how full was it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from rankzero.launch.protocol import WorkerFailed

UNLIMITED = 2**62
"""Bytes from which on a limit of cgroup v1 is none: without one it reads as the largest number of whole pages."""


@dataclass(frozen=True)
class Memory:
    """Bytes; None where unknown or, for the limit, where there is none.

    ``in_use`` leaves out the file cache that the kernel can drop at once; ``peak`` includes it.
    """

    in_use: int
    peak: int | None
    limit: int | None

    @property
    def is_at_limit(self) -> bool:
        """Whether the container has come to its own limit, rather than the node to the end of its memory."""
        return self.limit is not None and (self.peak is None or self.peak > 0.95 * self.limit)


@dataclass(frozen=True)
class Cgroup:
    """A memory cgroup: its folder and what the files in it are called."""

    folder: Path
    events: str
    usage: str
    peak: str
    limit: str
    cache: str
    """Key in memory.stat of the file cache that can be dropped at once, as the kubelet counts it."""

    def kills(self) -> int | None:
        """Processes in it that the kernel has killed for memory so far; None where the kernel does not count them."""
        return self._entry(self.events, "oom_kill")

    def memory(self) -> Memory | None:
        """As it is now; None where it cannot be read."""
        usage, limit = self._number(self.usage), self._number(self.limit)
        if usage is None:
            return None
        cache = self._entry("memory.stat", self.cache) or 0
        return Memory(
            in_use=max(0, usage - cache),
            peak=self._number(self.peak),
            limit=limit if limit is not None and limit < UNLIMITED else None,
        )

    def _number(self, name: str) -> int | None:
        text = self._read(name).strip()
        return int(text) if text.isdecimal() else None  # "max" in v2

    def _entry(self, name: str, key: str) -> int | None:
        return next(
            (int(words[1]) for line in self._read(name).splitlines() if (words := line.split())[:1] == [key]), None
        )

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="ascii")
        except OSError:  # older kernels lack some; v2's root has none
            return ""


def v1(folder: Path) -> Cgroup:
    """Of the memory hierarchy of cgroup v1."""
    names = ("memory.oom_control", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes")
    return Cgroup(folder, *names, cache="total_inactive_file")


def v2(folder: Path) -> Cgroup:
    """Of cgroup v2; memory.peak came with Linux 5.19."""
    return Cgroup(folder, "memory.events", "memory.current", "memory.peak", "memory.max", cache="inactive_file")


def own_cgroup(proc: Path = Path("/proc/self")) -> Cgroup | None:
    """The memory cgroup of this process, which in a container is the container's; None where none can be read."""
    try:
        paths = [line.split(":", 2) for line in (proc / "cgroup").read_text(encoding="utf-8").splitlines()]
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    memory = next((path for _, controllers, path in paths if "memory" in controllers.split(",")), None)
    unified = next((path for _, controllers, path in paths if not controllers), None)
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup" and memory is not None and "memory" in options.split(","):
            found = v1(_below(point, root, memory))
        elif kind == "cgroup2" and memory is None and unified is not None:
            found = v2(_below(point, root, unified))
        else:
            continue
        return found if found.memory() is not None else None
    return None


def _below(point: str, root: str, path: str) -> Path:
    """Where a cgroup is found: a container sees only its own branch, mounted at the top, or under the full path."""
    inside = Path(path)
    return Path(point) / inside.relative_to(root) if inside.is_relative_to(root) else Path(point)


class KillCount:
    """Tells from the kernel's count whether a worker that ends from now on was killed for memory."""

    def __init__(self, cgroup: Cgroup | None) -> None:
        self._cgroup = cgroup
        self._before = cgroup.kills() if cgroup is not None else None

    def explain(self, failure: WorkerFailed) -> WorkerFailed:
        """The failure with what is known about memory; unchanged where that says nothing."""
        now = self._cgroup.kills() if self._cgroup is not None else None
        if self._cgroup is None or self._before is None or now is None:
            return failure
        killed = failure.signal == "SIGKILL"
        if now > self._before:  # not the worker itself: one of its data loader processes, mostly, which it notices
            said = (
                f"{'killed' if killed else 'a process of its pod was killed'} for memory: {_why(self._cgroup.memory())}"
            )
        elif killed:
            said = "killed from outside, not for memory"
        else:
            return failure
        error = f"{failure.error}; {said}" if failure.error else said
        return dataclasses.replace(failure, out_of_memory=now > self._before, error=error)


def _why(memory: Memory | None) -> str:
    limit = f"limit {size(memory.limit)}" if memory and memory.limit else "no limit"
    peak = f"peak {size(memory.peak)}" if memory and memory.peak else "peak unknown"
    if memory and memory.is_at_limit:
        return f"{limit}, {peak}; raise resources.memory or lower the batch size or the data loader's processes"
    return f"{limit}, {peak}, so its node had none left; set resources.memory to what the pod needs on every node"


def size(number: int) -> str:
    """Bytes for a person, in the binary units of Kubernetes."""
    return f"{number / 2**20:.0f} MiB" if number < 10 * 2**30 else f"{number / 2**30:.1f} GiB"
