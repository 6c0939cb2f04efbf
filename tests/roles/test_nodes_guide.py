"""The commands of docs/nodes.md are ones that Ansible accepts; tests/lab/test_nodes_guide.py follows them."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from playbooks.action_plugins import site_arguments
from scripts import command
from scripts.cache import REPO

GUIDE = (REPO / "docs/nodes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.+?)```", GUIDE, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


def test_the_guide_shows_all_playbooks() -> None:
    shown = {word for line in COMMANDS for word in line.split() if re.fullmatch(r"playbooks/\w+\.yml", word)}

    assert shown == {str(path.relative_to(REPO)) for path in (REPO / "playbooks").glob("*.yml")}


def test_every_variable_that_the_guide_names_is_an_argument() -> None:
    specs = site_arguments.load_specs()
    owners = "|".join(["site", *(owner for owner in specs if owner != site_arguments.PLAYBOOKS)])
    arguments = {name for spec in specs.values() for name in spec}

    named = set(re.findall(rf"\b(?:{owners})_[a-z_]+\b", GUIDE))

    assert named
    assert named - arguments - specs.keys() == set()


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_guide_is_accepted(line: str) -> None:
    program, *words = shlex.split(line.replace("nodes.yml", "playbooks/inventory/sample.yml"))

    output = command.run([Path(sys.executable).parent / program, *words, "--syntax-check"], cwd=REPO)

    assert output.startswith("\nplaybook: ")
