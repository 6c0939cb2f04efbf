"""Fields of the settings' dataclasses: their documentation and bounds stand beside their defaults."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

LARGEST_EXACT = 2**53 - 1
"""Helm holds numbers as 64-bit floats: a whole number above this can arrive as another one."""


def bounded(
    default: Any = dataclasses.MISSING,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    non_empty: bool = False,
    doc: str,
) -> Any:
    """A dataclass field with its documentation and bounds (``minimum <= value <= maximum``, ``above < value``).

    Whole numbers without a ``maximum`` end at :data:`LARGEST_EXACT`.
    """
    if maximum is None and isinstance(default, int) and not isinstance(default, bool):
        maximum = LARGEST_EXACT
    metadata = {"doc": doc, "minimum": minimum, "above": above, "maximum": maximum, "non_empty": non_empty}
    return field(default=default, metadata=metadata)
