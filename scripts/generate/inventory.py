"""``playbooks/inventory/sample.yml``: every variable that a person may set, with its meaning and its default."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from scripts.cache import REPO
from scripts.generate import roles

PATH = REPO / "playbooks/inventory/sample.yml"
PLAYBOOKS = REPO / "playbooks/vars/arguments.yml"
WIDTH = 120
INDENT = "    "

HEAD = """\
# The manual of the variables. Copy this file, put your nodes in, and give it to ansible-playbook with -i.
# What is commented out is optional and shows the default; a variable may also be set for one node, below its name.
# Written by `python -m scripts.generate` from roles/*/meta/argument_specs.yml and playbooks/vars/arguments.yml.
training_nodes:
  hosts:
    gpu-01:
      ansible_host: 192.0.2.11
    gpu-02:
      ansible_host: 192.0.2.12
  vars:
    # Required: the account that ssh takes, which runs sudo: without a password, or with --ask-become-pass.
    ansible_user: ubuntu
    # Required for labels, drains and the device plugin: a kubeconfig on this machine. Empty leaves those out.
    machine_kubeconfig: "{{ lookup('ansible.builtin.env', 'KUBECONFIG') }}"
"""
REQUIRED = {"machine_kubeconfig"}
"""Arguments that stand in the head."""


def render() -> str:
    """The file's text."""
    lines = [HEAD.rstrip()]
    lines += _section("The playbooks", PLAYBOOKS.read_text(encoding="utf-8"))
    for role in roles.roles():
        lines += _section(f"Role {role.name}", (role / roles.SPECS).read_text(encoding="utf-8"))
    return "\n".join([*lines, ""])


def arguments(specs: str) -> dict[str, dict[str, Any]]:
    """All arguments of a role's entry points, each as it is described where it comes first."""
    found: dict[str, dict[str, Any]] = {}
    for point in yaml.safe_load(specs)["argument_specs"].values():
        for name, option in point.get("options", {}).items():
            found.setdefault(name, option)
    return found


def _section(title: str, specs: str) -> Iterator[str]:
    main = yaml.safe_load(specs)["argument_specs"]["main"]
    options = {name: option for name, option in arguments(specs).items() if name not in REQUIRED}
    if options:
        yield ""
        yield from _comment(f"== {title}: {main['short_description']} ==")
    for name, option in options.items():
        yield from _comment(_meaning(option))
        yield f"{INDENT}# {name}: {json.dumps(option['default']) if 'default' in option else ''}".rstrip()


def _meaning(option: dict[str, Any]) -> str:
    description = option["description"]
    text = description if isinstance(description, str) else " ".join(description)
    choices = f" One of: {', '.join(map(str, option['choices']))}." if "choices" in option else ""
    keys = ", ".join(option.get("options", {}))
    return f"{text}{choices}{f' Items have the keys {keys}.' if keys else ''}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=f"{INDENT}## ",
        subsequent_indent=f"{INDENT}## ",
        break_long_words=False,
        break_on_hyphens=False,
    )
