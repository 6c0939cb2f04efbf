"""The first program that a newcomer runs must not end in a traceback."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.cache import REPO

SOURCE = Path(bootstrap.__file__)


def test_an_old_python_can_read_as_far_as_the_sentence_about_its_age() -> None:
    ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_the_age_of_python_is_checked_before_anything_else_is_imported() -> None:
    body = ast.parse(SOURCE.read_text(encoding="utf-8")).body[1:]
    assert isinstance(body[0], ast.Import)
    assert [alias.name for alias in body[0].names] == ["sys"]
    assert isinstance(body[1], ast.If)


def test_make_alone_lists_the_targets_and_changes_nothing() -> None:
    done = subprocess.run(["make"], cwd=REPO, capture_output=True, text=True, check=True)
    for target in ("demo", "test", "test-fast", "lint", "lab", "lab-down", "build-image", "clean-cache"):
        assert f"make {target} " in done.stdout


def test_a_machine_without_the_space_is_refused_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def installs() -> None:
        raise AssertionError("nothing may be installed")

    monkeypatch.setattr(bootstrap, "machine_problems", lambda: ["The disk is full.", "You are not root."])
    for name in ("install_apt_packages", "install_uv", "sync_environment"):
        monkeypatch.setattr(bootstrap, name, installs)
    assert bootstrap.main([]) == 1
    said = capsys.readouterr().err
    assert "  - The disk is full.\n  - You are not root.\n" in said


def test_a_complete_environment_is_left_alone_at_once() -> None:
    command = [sys.executable, "-m", "scripts.bootstrap", "--tools-only"]
    subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    began = time.monotonic()
    second = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True)
    assert second.stderr == ""
    assert time.monotonic() - began < 20  # 0.3 s here
