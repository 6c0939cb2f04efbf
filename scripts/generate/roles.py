"""``roles/*/README.md``: what a role does and each of its arguments, from its ``meta/argument_specs.yml``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from scripts.cache import REPO

ROLES = REPO / "roles"
SPECS = "meta/argument_specs.yml"

Spec = dict[str, Any]


def roles() -> list[Path]:
    """The folders of the roles that describe their arguments."""
    return sorted(specs.parent.parent for specs in ROLES.glob(f"*/{SPECS}"))


def readme(role: Path) -> Path:
    """The file that :func:`render` is for."""
    return role / "README.md"


def render(role: Path) -> str:
    """The text of a role's README."""
    points: dict[str, Spec] = yaml.safe_load((role / SPECS).read_text(encoding="utf-8"))["argument_specs"]
    lines = [
        f"# {role.name}",
        "",
        f"<!-- Written by `python -m scripts.generate` from roles/{role.name}/{SPECS}. -->",
    ]
    for name, point in points.items():
        title = "Arguments" if name == "main" else f"Entry point `{name}`"
        lines += ["", *_paragraphs(point["description"]), "", f"## {title}", ""]
        rows = list(_rows(point["options"]))
        lines += ["| Argument | Type | Default | Meaning |", "|---|---|---|---|", *rows] if rows else ["None."]
    return "\n".join([*lines, ""])


def _paragraphs(description: str | list[str]) -> list[str]:
    return [description] if isinstance(description, str) else "\n\n".join(description).split("\n")


def _rows(options: dict[str, Spec], prefix: str = "") -> Iterator[str]:
    """One line for each argument and for each key of its items, which appear as ``argument[].key``."""
    for name, option in options.items():
        default = "required" if option.get("required") else f"`{json.dumps(option['default'])}`"
        meaning = " ".join(_paragraphs(option["description"]))
        yield f"| `{prefix}{name}` | {_kind(option)} | {default} | {meaning} |"
        yield from _rows(option.get("options", {}), f"{name}[].")


def _kind(option: Spec) -> str:
    if "choices" in option:
        return " \\| ".join(f"`{choice}`" for choice in option["choices"])
    return f"list of {option['elements']}" if option["type"] == "list" else str(option["type"])
