"""The sentences of ``values.yaml``: the comment ``# -- ...`` above each key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rankzero.errors import ConfigError

MARK = "# -- "


def load_values(path: Path) -> dict[str, Any]:
    """The default values themselves."""
    values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return values


def read_comments(path: Path) -> dict[str, str]:
    """Map each documented key path (``image.tag``) to its sentence."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path} is not a mapping", hint="write one key a line")
    comments = ((key, _above(lines, line)) for key, line in _keys(root, ""))
    return {key: comment for key, comment in comments if comment}


def _keys(mapping: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int]]:
    """Key paths of a mapping and those below, each with its line from 0."""
    for key, value in mapping.value:
        path = f"{prefix}{key.value}"
        yield path, key.start_mark.line
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, f"{path}.")


def _above(lines: list[str], line: int) -> str:
    """The documenting comment that ends right above ``line``; empty when there is none."""
    words: list[str] = []
    for above in reversed(lines[:line]):
        stripped = above.strip()
        if stripped.startswith(MARK):
            return " ".join([stripped.removeprefix(MARK), *words])
        if not stripped.startswith("#"):
            return ""
        words.insert(0, stripped.removeprefix("#").strip())
    return ""
