"""Every sentence of a refusal is one that a test provokes and reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankzero.errors import ConfigError
from scripts.generate import files, refusals


def texts() -> Iterator[str]:
    """All texts in the chart's tests; where a test inserts a value, there is a line end."""
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)):
                    yield text
                case ast.JoinedStr(values=parts):
                    yield "\n".join(str(part.value) for part in parts if isinstance(part, ast.Constant))


def test_each_sentence_stands_in_a_test() -> None:
    """Its longest stretch without a value does, or the first 40 characters of that."""
    known = "\n".join(texts())
    formats = [sentence for subject in refusals.subjects() for sentence in refusals.sentences(subject)]
    stretches = [max(refusals.VERB.split(sentence), key=len).strip(" ,;:")[:40] for sentence in formats]
    assert [stretch for stretch in stretches if stretch not in known] == []
    assert len(set(formats)) == len(formats) >= 30


def test_each_file_of_refusals_is_asked() -> None:
    found = {path.stem.removeprefix("_validate-") for path in files.TEMPLATES.glob("_validate-*.tpl")}
    assert found == set(refusals.subjects())


def test_a_sentence_in_another_form_is_not_left_out_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_validate-x.tpl").write_text("{{- $errors = append $errors $sentence }}", encoding="utf-8")
    monkeypatch.setattr(files, "TEMPLATES", tmp_path)
    with pytest.raises(ConfigError):
        refusals.sentences("x")
