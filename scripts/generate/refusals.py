"""``docs/refusals.md``: every sentence with which the chart refuses values, from templates/_validate-*.tpl."""

from __future__ import annotations

import json
import re

from rankzero.errors import ConfigError
from scripts.generate import files

SUBJECTS = re.compile(r'range list ((?:"[a-z]+" ?)+)')
TITLE = re.compile(r"\{\{/\*\s*(.+?)\s*\*/\}\}", re.DOTALL)
SENTENCE = re.compile(r'append \$errors \(?(?:printf )?"((?:[^"\\]|\\.)*)"')
VERB = re.compile(r"%[a-z]")

HEAD = """# What the chart refuses

<!-- Written by `python -m scripts.generate` from charts/rankzero/templates/_validate-*.tpl. -->

Misspelt keys, wrong types and numbers out of range are refused by the schema; [values.md](values.md) lists all keys.
What follows are the contradictions between values, and between them and the cluster. `helm install`, `upgrade` and
`template` name all that they find in one message, each with the fix; … stands for what was given.
"""


def subjects() -> list[str]:
    """The subjects in the order of the message."""
    found = SUBJECTS.search((files.TEMPLATES / "validate.yaml").read_text(encoding="utf-8"))
    if not found:
        raise ConfigError("validate.yaml has no list of subjects", hint="keep the form of scripts/generate/refusals.py")
    return re.findall(r"[a-z]+", found[1])


def sentences(subject: str) -> list[str]:
    """The formats of a subject's sentences, as printf takes them."""
    text = _template(subject)
    found = [str(json.loads(f'"{sentence}"')) for sentence in SENTENCE.findall(text)]
    if len(found) != text.count("append $errors"):
        raise ConfigError(
            f"a sentence in _validate-{subject}.tpl is not found",
            hint='write `append $errors "..."` or `(printf "..."`',
        )
    return found


def render() -> str:
    """The text of ``docs/refusals.md``."""
    parts = [HEAD]
    for subject in subjects():
        title = TITLE.match(_template(subject))
        lines = [f"- {VERB.sub('…', sentence)}" for sentence in sentences(subject)]
        parts.append("\n".join([f"## {subject.capitalize()}", "", *([title[1], ""] if title else []), *lines, ""]))
    return "\n".join(parts)


def _template(subject: str) -> str:
    return (files.TEMPLATES / f"_validate-{subject}.tpl").read_text(encoding="utf-8")
