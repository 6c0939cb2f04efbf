"""Arguments that come from the command line are text: `-e x=false` is "false", `-e x=a,b` is "a,b".

Ansible's argument specs allow that for booleans and lists, and leave the variable as it is. So each use of such an
argument says what it is to be; this looks at all of them, in every role.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.generate import roles
from tests.roles.templating import evaluate, load

FILTERS = {"bool": "bool", "list": "machine_words"}
CONDITIONS = {"when", "that", "until", "changed_when", "failed_when"}
"""Keys of tasks whose values are expressions without braces."""


def arguments() -> list[tuple[str, str]]:
    """Name and filter of every argument of every role that is a boolean or a list of words."""
    found = {}
    for role in roles.roles():
        for point in load(role / roles.SPECS)["argument_specs"].values():
            for name, option in point["options"].items():
                if option["type"] == "bool" or (option["type"], option.get("elements")) == ("list", "str"):
                    found[name] = FILTERS[option["type"]]
    return sorted(found.items())


def expressions(value: Any, *, bare: bool = False) -> Iterator[str]:
    """All expressions of Ansible's templating in what a YAML file holds, without texts in quotes."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from expressions(below, bare=key in CONDITIONS)
    elif isinstance(value, list):
        for below in value:
            yield from expressions(below, bare=bare)
    elif isinstance(value, str):
        for expression in [value] if bare else re.findall(r"{[{%](.*?)[%}]}", value, re.DOTALL):
            yield re.sub(r"'[^']*'", "''", expression)


def role_expressions(role: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(role.rglob("*")):
        if file.suffix == ".yml" and file.parent.name != "meta":
            yield from ((file, expression) for expression in expressions(load(file)))
        elif file.suffix == ".j2":
            yield from ((file, expression) for expression in expressions(file.read_text(encoding="utf-8")))


USES = [(file, expression) for role in roles.roles() for file, expression in role_expressions(role)]


@pytest.mark.parametrize(("name", "wanted"), arguments())
def test_each_use_of_a_boolean_or_a_list_takes_text_too(name: str, wanted: str) -> None:
    use = re.compile(rf"(?<![\w.]){name}\b(?!\(|(\s*\|\s*default\([^()]*\))?\s*\|\s*{wanted}\b)")

    assert [f"{file.parent.parent.name}/{file.name}: {text}" for file, text in USES if use.search(text)] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [("a,b", ["a", "b"]), (" a , b,", ["a", "b"]), ("", []), ([], []), (["a", "b"], ["a", "b"]), ([7], ["7"])],
)
def test_a_list_is_the_same_as_text_and_as_a_list(given: Any, words: list[str]) -> None:
    assert evaluate(roles.roles()[0], "given | machine_words", {"given": given}) == words
