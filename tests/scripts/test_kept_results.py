"""``pytest --keep NAME`` says later what was run: how each test ended, and how long it took."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import result_file
from tests.kept_results import KeptResults

TESTS = """
import pytest

@pytest.fixture
def broken():
    yield
    raise RuntimeError

def test_passes(): pass
def test_fails(): assert False
def test_passes_and_leaves_something_behind(broken): pass
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(result_file, "FOLDER", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(text: str, *options: str) -> dict[str, str]:
    """Run this text as a file of tests; returns the kept outcomes by test."""
    Path("test_it.py").write_text(text, encoding="utf-8")
    own = ["-q", "-c", os.devnull, "--rootdir", ".", "--import-mode=importlib", "-p", "no:cacheprovider"]
    sys.modules.pop("test_it", None)
    pytest.main([*own, *options, "test_it.py"], plugins=[KeptResults("it")])
    kept = result_file.read("it")
    assert kept is not None
    return {name.partition("::")[2]: test["outcome"] for name, test in kept["tests"].items()}


@pytest.mark.usefixtures("folder")
def test_the_worst_of_setup_body_and_teardown_is_kept() -> None:
    assert run(TESTS) == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_passes_and_leaves_something_behind": "failed",
    }


@pytest.mark.usefixtures("folder")
def test_a_run_of_some_keeps_what_is_known_of_the_others_and_forgets_those_that_are_gone() -> None:
    run(TESTS)
    again = run(TESTS.replace("test_fails", "test_renamed"), "-k", "test_passes")
    assert set(again) == {"test_passes", "test_passes_and_leaves_something_behind"}
    run(TESTS)
    assert run(TESTS, "-k", "test_fails")["test_passes"] == "passed"
