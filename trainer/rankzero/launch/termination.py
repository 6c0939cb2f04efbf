"""The termination message: what `kubectl describe pod` shows of a container that has ended, 4096 bytes at most."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from rankzero import contract

MOST = 4096
"""Bytes that the kubelet keeps; it cuts the rest off wherever that is."""
MOST_OF_REASON = 2048
"""Bytes of the reason, so that some of the last lines always fit."""


def leave(text: str) -> None:
    """Leave the message; outside a pod there is no file for it. Failing to must not hide what it is about."""
    path = Path(contract.TERMINATION_LOG)
    with contextlib.suppress(OSError):
        if path.exists():
            path.write_bytes(cut(text, MOST))


def of_failed_run(reason: str, attempts: list[dict[str, Any]]) -> str:
    """The message that every pod of a failed run leaves, from its records: cause, rank, step and last lines."""
    said = [cut(reason, MOST_OF_REASON).decode()]
    cause = attempts[-1].get("cause") if attempts else None
    if not cause:
        return said[0]
    said.append(f"attempt {attempts[-1]['attempt']}, {_where(cause)}, {_step(attempts[-1])}")
    if cause["reason"] not in reason:
        said.append(cut(cause["reason"], MOST_OF_REASON // 2).decode())
    failure = cause["failure"]
    if failure and failure["last_lines"]:
        said.append(f"the end of what rank {failure['rank']} printed:")
        said += _newest(failure["last_lines"], MOST - len("\n".join(said).encode()) - 1)
    return "\n".join(said)


def of_stopped_pod(attempt: int, record: dict[str, Any] | None) -> str:
    """The message of a pod that was stopped from outside; ``record`` is that of its attempt, on node rank 0 only."""
    where = f"in attempt {attempt}" if attempt else "while it had no workers"
    step = f", {_step(record)}" if record is not None and record["attempt"] == attempt else ""
    return f"stopped from outside (SIGTERM) {where}{step}; its successor goes on from the last checkpoint"


def cut(text: str, most: int) -> bytes:
    """UTF-8 of the text, ``most`` bytes of it, without half a character at the end."""
    encoded = text.encode(errors="replace")
    return encoded if len(encoded) <= most else encoded[:most].decode(errors="ignore").encode()


def _newest(lines: list[str], room: int) -> list[str]:
    """As many of the last lines as fit into ``room`` bytes with their line ends."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        kept.insert(0, line)
    return kept


def _where(cause: dict[str, Any]) -> str:
    if failure := cause["failure"]:
        return f"rank {failure['rank']} on node rank {failure['node_rank']}"
    if (rank := cause.get("rank", -1)) >= 0:
        return f"rank {rank} on node rank {cause['node_rank']}"
    return f"node rank {cause['node_rank']}" if cause["node_rank"] >= 0 else "no rank in particular"


def _step(record: dict[str, Any]) -> str:
    return f"last step {record['last_step']}" if "last_step" in record else "no step"
