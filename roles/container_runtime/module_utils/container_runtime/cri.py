"""What the running container runtime says of itself through the CRI."""

from __future__ import annotations

import json
from typing import Any

SILENT: dict[str, Any] = {
    **{"answers": False, "ready": False, "runtimes": {}, "default": "", "cdi": None, "problem": ""},
    "base_specs": [],
}


def info_command(crictl: list[str], socket: str) -> list[str]:
    """The question whose answer :func:`parse_info` reads."""
    return [*crictl, "--runtime-endpoint", f"unix://{socket}", "--timeout", "10s", "info"]


def parse_rlimits(text: str | None) -> dict[str, dict[str, int]]:
    """The limits ``nofile`` and ``memlock`` that a base specification gives to containers, without those it leaves."""
    try:
        process = json.loads(text or "").get("process") or {}
        limits = {item["type"].removeprefix("RLIMIT_").lower(): item for item in process.get("rlimits") or []}
        return {
            name: {end: int(limits[name][end]) for end in ("soft", "hard")}
            for name in ("nofile", "memlock")
            if name in limits
        }
    except (ValueError, KeyError, TypeError, AttributeError):  # containerd itself does not start with it
        return {}


def parse_info(status: int, output: str, errors: str) -> dict[str, Any]:
    """Whether the CRI answers and is ready, its runtimes with their options, the default, and what it complains of."""
    try:
        info = json.loads(output) if status == 0 else None
    except ValueError:
        info = None
    if not isinstance(info, dict):
        return {**SILENT, "problem": " ".join((errors or output).split())[-400:]}
    conditions = {item["type"]: item for item in info.get("status", {}).get("conditions", [])}
    ready = conditions.get("RuntimeReady", {})
    containerd = info.get("config", {}).get("containerd", {})
    runtimes = {name: value.get("options") or {} for name, value in (containerd.get("runtimes") or {}).items()}
    specs = {str(value.get("baseRuntimeSpec") or "") for value in (containerd.get("runtimes") or {}).values()}
    # Runtimes other than containerd tell the names of the handlers only.
    runtimes.update(
        {
            item["name"]: {}
            for item in info.get("runtimeHandlers") or []
            if item.get("name") not in (None, "", *runtimes)
        }
    )
    return {
        "answers": True,
        "ready": bool(ready.get("status")),
        "runtimes": runtimes,
        "default": containerd.get("defaultRuntimeName", ""),
        "cdi": info.get("config", {}).get("enableCDI"),
        "base_specs": sorted(specs - {""}),
        "problem": "" if ready.get("status") else str(ready.get("message", "")),
    }
