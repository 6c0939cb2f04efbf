"""The kernel settings of this machine that its nodes change, written down before the first starts and put back after.

Nodes have network namespaces of their own, so what they set below ``net.`` ends with them. All other settings are
the one kernel's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scripts.cache import cache_dir

PROC_SYS = Path("/proc/sys")

CHANGED_BY_NODES = (
    # The kubelet, at each start (setupKernelTunables).
    "kernel.keys.root_maxbytes",
    "kernel.keys.root_maxkeys",
    "kernel.panic",
    "kernel.panic_on_oops",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    # systemd, as a node boots: itself, and from Debian's files in /usr/lib/sysctl.d.
    "fs.file-max",
    "fs.nr_open",
    "fs.protected_fifos",
    "fs.protected_hardlinks",
    "fs.protected_regular",
    "fs.protected_symlinks",
    "kernel.pid_max",
    # playbooks/site.yml, besides fs.file-max.
    "fs.inotify.max_user_instances",
    "fs.inotify.max_user_watches",
    "vm.max_map_count",
)


def keep() -> None:
    """Write the settings down before a node runs; what was written since the machine's last boot stays."""
    record = _record()
    if record.exists() and json.loads(record.read_text(encoding="utf-8"))["boot"] == _boot():
        return
    partial = record.with_suffix(".partial")
    partial.write_text(json.dumps({"boot": _boot(), "values": read()}, indent=2) + "\n", encoding="utf-8")
    partial.rename(record)


def put_back() -> list[str]:
    """Undo the nodes' changes once none runs; returns what the kernel refused, a line each.

    Nothing is done where the machine has booted since: its kernel then started afresh.
    """
    record = _record()
    if not record.exists():
        return []
    kept = json.loads(record.read_text(encoding="utf-8"))
    return write(kept["values"]) if kept["boot"] == _boot() else []


@contextmanager
def unchanged() -> Iterator[None]:
    """Put the settings back after the body, however it ends."""
    before = read()
    try:
        yield
    finally:
        write(before)


def read() -> dict[str, str]:
    """The present values, of those settings that this kernel has."""
    files = {name: _file(name) for name in CHANGED_BY_NODES}
    return {name: file.read_text(encoding="ascii").strip() for name, file in files.items() if file.exists()}


def write(values: Mapping[str, str]) -> list[str]:
    """Set what differs from ``values``; returns what the kernel refused, a line each."""
    present = read()
    refused = []
    for name, value in values.items():
        if present.get(name) != value:
            try:
                _file(name).write_text(value, encoding="ascii")
            except OSError as error:
                refused.append(f"{name} = {value} ({error.strerror})")
    return refused


def _file(name: str) -> Path:
    return PROC_SYS.joinpath(*name.split("."))


def _boot() -> str:
    return _file("kernel.random.boot_id").read_text(encoding="ascii").strip()


def _record() -> Path:
    return cache_dir("lab") / "kernel.json"
