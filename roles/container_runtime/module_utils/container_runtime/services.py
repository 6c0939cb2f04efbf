"""The services that start containers: units, limits of their processes, and the role's drop-ins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

UNIT_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "MainPID", "NeedDaemonReload", "LimitNOFILE", "LimitMEMLOCK"),
    "ExecMainStartTimestampMonotonic",
)


def read_record(path: Path) -> dict[str, Any]:
    """The record, empty where there is none. Raises ValueError for one that was damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON ({error}). Remove it; the values of before are then not known."
        ) from error
    return record


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
