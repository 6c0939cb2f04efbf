"""What a role has left on a node: the record of what it changed, and its files. For the modules of all roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REMEDY = "Remove it; what the role has changed on the node, and what was there before, is then not known."


def read_text(path: Path) -> str | None:
    """The text of a file as it is, None where there is none. Raises OSError for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def read_record(path: Path, **kinds: type) -> dict[str, Any]:
    """A role's record, empty where none is there. Raises ValueError for one that was damaged.

    ``kinds`` are the types of those of its values that the role goes through, where they are there.
    """
    text = read_text(path)
    if text is None:
        return {}
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). {REMEDY}") from error
    if isinstance(record, dict):
        odd = [name for name, kind in kinds.items() if not isinstance(record.get(name, kind()), kind)]
        if not odd:
            return record
        raise ValueError(f"{path} is not what the role writes: see {', '.join(odd)} in it. {REMEDY}")
    raise ValueError(f"{path} is no JSON object. {REMEDY}")
