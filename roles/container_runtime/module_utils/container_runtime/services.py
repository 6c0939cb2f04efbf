"""The services that start containers: units, limits of their processes, and the role's drop-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

UNIT_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "MainPID", "NeedDaemonReload", "LimitNOFILE", "LimitMEMLOCK"),
    "ExecMainStartTimestampMonotonic",
)


def service_of(drop_in: Path) -> str:
    """The service whose unit a drop-in belongs to, from a path like ``.../kubelet.service.d/90-limits.conf``."""
    return drop_in.parent.name.rpartition(".service.d")[0]


def show_command(services: Sequence[str]) -> list[str]:
    """The question to systemd whose answer :func:`parse_units` reads."""
    names = [f"{service}.service" for service in services]
    return ["systemctl", "show", f"--property={','.join(UNIT_PROPERTIES)}", "--", *names]


def parse_units(show: str) -> dict[str, dict[str, str]]:
    """The blocks that ``systemctl show`` prints for several units, by the service's name."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines()) for block in show.strip().split("\n\n") if block)
    return {block["Id"].rpartition(".service")[0]: block for block in blocks}


def read_running(units: Mapping[str, Mapping[str, str]], root: Path) -> dict[str, str]:
    """The limits of each service's main process, without services that do not run."""
    running = {}
    for service, unit in units.items():
        try:
            running[service] = (root / "proc" / unit["MainPID"] / "limits").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):  # 0, or ended since systemd was asked
            continue
    return running
