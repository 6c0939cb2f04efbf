"""Evaluate a role's variables with Ansible's own templating, on a node that is described instead of read."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

import tests.roles.torch_first  # noqa: F401  # isort: skip
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader, init_plugin_loader, lookup_loader
from ansible.template import Templar, trust_as_template

init_plugin_loader()


def evaluate(role: Path, expression: str, variables: dict[str, Any]) -> Any:
    """The value of a Jinja ``expression`` over the role's defaults and vars, overridden by ``variables``."""
    scope = _variables(role) | variables
    return Templar(DataLoader(), variables=scope).template(trust_as_template(f"{{{{ {expression} }}}}"))


@functools.cache
def _variables(role: Path) -> dict[str, Any]:
    filter_loader.add_directory(str(role / "filter_plugins"))
    filter_loader.add_directory(str(role.parent / "machine/filter_plugins"))
    lookup_loader.add_directory(str(role.parent / "machine/lookup_plugins"))
    loader = DataLoader()
    scope: dict[str, Any] = {}
    for file in [role / "defaults" / "main.yml", *sorted((role / "vars" / "main").glob("*.yml"))]:
        scope |= loader.load_from_file(str(file), trusted_as_template=True)
    return scope


def load(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))
