"""Two commands that would undo each other run one after the other."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scripts.cache import REPO
from scripts.lab import lock, programs

SECOND = """
import sys, pathlib
from scripts.lab import lock
with lock.held(pathlib.Path(sys.argv[1]), lambda: print("waiting", flush=True)):
    print("has it", flush=True)
"""


def test_the_second_process_says_that_it_waits_and_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock.held(path):
        second = subprocess.Popen(
            [sys.executable, "-c", SECOND, str(path)], cwd=REPO, stdout=subprocess.PIPE, text=True
        )
        assert second.stdout
        assert second.stdout.readline() == "waiting\n"
    assert second.communicate(timeout=90)[0] == "has it\n"


def test_a_free_lock_is_had_without_a_word(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(tmp_path / "lock")], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert done.stdout == "has it\n"


def test_the_clusters_lock_does_not_depend_on_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    assert not lock.CLUSTER.is_relative_to(tmp_path)
    assert lock.CLUSTER.parent == Path("/run")


def test_programs_that_another_process_builds_are_not_built_a_second_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    calls = tmp_path / "calls"
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho go99.0\n', encoding="utf-8")
    go.chmod(0o755)
    target = programs.folder("etcd")
    with lock.held(target.parent / ".lock"):
        second = threading.Thread(target=programs.build, args=("etcd",))
        second.start()
        target.mkdir()
    second.join(timeout=90)
    assert not second.is_alive()
    assert not calls.exists()
