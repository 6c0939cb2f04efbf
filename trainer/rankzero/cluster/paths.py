"""Where two documents differ, as paths: ``spec.template.spec.containers[trainer].image``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ABSENT = object()
"""Stands for what one of two documents does not have."""


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each path with what is there in the one and in the other; :data:`ABSENT` where nothing is.

    Items of a list go by their name where all have one of their own, else the list is compared as a whole.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and (names := _named(old)) and (others := _named(new)):
        for name in [*names, *(name for name in others if name not in names)]:
            yield from differences(names.get(name, ABSENT), others.get(name, ABSENT), f"{path}[{name}]")
    elif old != new or isinstance(old, bool) != isinstance(new, bool):  # True == 1
        yield path, old, new


def changed_paths(old: Any, new: Any) -> list[str]:
    """The paths alone."""
    return [path for path, _, _ in differences(old, new)]


def _named(items: list[Any]) -> dict[str, Any]:
    """Items by name; empty where they have none or share one."""
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if None in names or len(set(names)) != len(names):
        return {}
    return dict(zip(map(str, names), items, strict=True))
