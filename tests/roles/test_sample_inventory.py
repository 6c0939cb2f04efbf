"""playbooks/inventory/sample.yml is the manual of the variables: all of them, and an inventory as it stands."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from playbooks.action_plugins import site_arguments
from scripts import command
from scripts.cache import REPO
from scripts.generate import inventory

TEXT = inventory.PATH.read_text(encoding="utf-8")
OPTIONAL = re.compile(r"^(    )# ([a-z]\w*:.*)$", re.MULTILINE)


def test_the_file_is_what_the_generator_writes() -> None:
    assert inventory.render() == TEXT, "run `python -m scripts.generate`"


def test_with_its_comments_taken_away_it_has_every_argument_and_each_at_its_default() -> None:
    specs = site_arguments.load_specs()
    variables = yaml.safe_load(OPTIONAL.sub(r"\1\2", TEXT))["training_nodes"]["vars"]

    for name in ["ansible_user", *inventory.REQUIRED]:
        assert variables.pop(name)
    known = {name: option for spec in specs.values() for name, option in spec.items()}
    assert variables.keys() == known.keys() - inventory.REQUIRED
    assert all(variables[name] == option.get("default") for name, option in known.items() if name in variables)
    assert site_arguments.checked(variables, specs)[1] == []


@pytest.mark.parametrize("text", [TEXT, OPTIONAL.sub(r"\1\2", TEXT)], ids=["as it is", "all variables given"])
def test_ansible_reads_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts.yml").write_text(text)

    listed = command.run(
        [Path(sys.executable).parent / "ansible-inventory", "-i", tmp_path / "hosts.yml", "--list"], cwd=REPO
    )

    assert json.loads(listed)["training_nodes"]["hosts"] == ["gpu-01", "gpu-02"]
