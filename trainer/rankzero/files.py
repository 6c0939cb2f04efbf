"""Small files that are either whole or absent: temporary name, fsync, rename.

They are JSON as its standard has it, for readers in any language: null stands for a figure that is no number.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from pathlib import Path
from typing import Any


def finite(figure: float) -> float | None:
    """The figure, or None for NaN and infinity, which JSON cannot say."""
    return figure if math.isfinite(figure) else None


def write_json(path: Path, document: Any, *, durable: bool = True) -> None:
    """Replace ``path`` atomically by ``document``; its folder is created.

    Raises OSError, and ValueError for NaN or infinity (see :func:`finite`).

    ``durable`` False leaves out the syncs, for what is written again in a moment.
    """
    write_bytes(path, f"{json.dumps(document, indent=2, allow_nan=False)}\n".encode(), durable=durable)


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` atomically by a file with ``data``; its folder is created. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id: in a pod it is always the same, and a pod that lingers may write to the same volume.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def read_json(path: Path, *, damaged_is_absent: bool = False) -> Any | None:
    """The document in ``path``; None where there is none. Raises ValueError where it is not JSON.

    NaN and infinity, which other writers may leave, are None.
    ``damaged_is_absent`` True answers None for that too: what was written without ``durable`` may be empty or
    cut after a power loss.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except FileNotFoundError:
        return None
    except ValueError:
        if damaged_is_absent:
            return None
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
