"""The commands in docs/chart.md work as they are written."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from scripts.cache import REPO
from scripts.generate import files, helm
from tests.chart.rendering import documents, minimal, only, render

GUIDE = (REPO / "docs" / "chart.md").read_text(encoding="utf-8").replace("\\\n", "")
"""Commands are on one line each."""
COMMANDS = [
    line for block in re.findall(r"^```bash\n(.+?)^```", GUIDE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


@pytest.mark.parametrize("command", [line for line in COMMANDS if re.match("helm (install|template|upgrade)", line)])
def test_the_arguments_of_install_and_upgrade_render(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`helm template` takes the arguments of both and needs no cluster."""
    monkeypatch.chdir(REPO)
    _, _, *arguments = shlex.split(command)
    assert only(documents(helm.helm("template", *arguments)), "StatefulSet")["spec"]["replicas"] == 2


@pytest.mark.parametrize("given", re.findall(r"^\|.*\| `(--set[^`]+)` \|$", GUIDE, re.MULTILINE))
def test_what_the_guide_gives_on_the_command_line_renders(given: str) -> None:
    """A number where a text is wanted, or the other way round, would be refused."""
    assert render(minimal({}), extra=shlex.split(given))


def test_what_stands_for_a_manifest_s_fields_are_keys_of_the_chart() -> None:
    schema = json.loads(files.SCHEMA.read_text(encoding="utf-8"))
    _, _, after = GUIDE.partition("## From a manifest of your own")
    rows = re.findall(r"^\|.+\| (.+) \|$", after.partition("\n## ")[0], re.MULTILINE)
    keys = [key for row in rows for key in re.findall(r"`([a-zA-Z.]+)`", row)]
    assert len(keys) > 20
    for key in keys:
        part = schema
        for name in key.split("."):
            assert name in part.get("properties", {}), key
            part = part["properties"][name]


def test_the_guide_shows_how_to_start_change_and_end_a_run() -> None:
    assert {" ".join(line.split()[:2]) for line in COMMANDS} == {
        "helm install",
        "helm template",
        "helm upgrade",
        "helm uninstall",
        "kubectl delete",
        "kubectl drain",
        "kubectl scale",
    }
