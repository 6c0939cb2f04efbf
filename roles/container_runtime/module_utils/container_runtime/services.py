"""The services that start containers: units, limits of their processes, and the role's drop-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

UNIT_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "MainPID", "NeedDaemonReload", "LimitNOFILE", "LimitMEMLOCK"),
    *("ExecMainStartTimestampMonotonic", "SubState", "Job"),
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


def busy(unit: Mapping[str, str]) -> bool:
    """Whether systemd still starts or stops the service. It may for ever: K3s's unit has no time limit."""
    return unit.get("Job", "") not in ("", "0")


def down(units: Mapping[str, Mapping[str, str]], awaited: Sequence[str]) -> list[str]:
    """A sentence for each of the ``awaited`` services that does not run, also because its start lasts."""
    return [
        f"{name} does not start (systemd: {unit.get('ActiveState')}, {unit.get('SubState')})"
        for name, unit in units.items()
        if name in awaited and (unit.get("ActiveState") != "active" or busy(unit))
    ]


def read_running(units: Mapping[str, Mapping[str, str]], root: Path) -> dict[str, str]:
    """The limits of each service's main process, without services that do not run."""
    running = {}
    for service, unit in units.items():
        try:
            running[service] = (root / "proc" / unit["MainPID"] / "limits").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):  # 0, or ended since systemd was asked
            continue
    return running
