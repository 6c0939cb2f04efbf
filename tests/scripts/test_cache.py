"""The cache folder is ours alone, or it is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.cache import MARKER, REPO, CacheFolderError, cache_dir, claim


def test_a_new_cache_folder_is_marked_as_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "new"))
    assert cache_dir("logs") == tmp_path / "new" / "logs"
    assert (tmp_path / "new" / MARKER).exists()


def test_an_empty_folder_becomes_ours_and_stays_it_when_it_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    cache_dir("logs")
    assert claim() == tmp_path


def test_the_default_folder_carries_our_name_and_needs_no_marker_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RANKZERO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rankzero" / "logs").mkdir(parents=True)
    assert cache_dir() == tmp_path / "rankzero"
    assert (tmp_path / "rankzero" / MARKER).exists()


def test_a_folder_with_files_of_others_is_refused_and_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(CacheFolderError, match="thesis") as refusal:
        cache_dir("logs")
    assert str(tmp_path / "rankzero") in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_marker_of_another_program_does_not_make_a_folder_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    (tmp_path / MARKER).write_text("Signature: 8a477f597d28d172789f06886806bc55\n# cargo\n", encoding="utf-8")
    (tmp_path / "target").mkdir()
    with pytest.raises(CacheFolderError, match="target"):
        claim()


def test_a_relative_path_is_taken_from_the_present_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANKZERO_CACHE", "here")
    assert cache_dir() == tmp_path / "here"


@pytest.mark.parametrize("module", ["scripts.bootstrap --tools-only", "scripts.bootstrap", "scripts.lab kubeconfig"])
@pytest.mark.parametrize("place", ["/proc/cannot-be", "a file"])
def test_a_cache_folder_that_cannot_be_is_one_sentence(module: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", *module.split()],
        cwd=REPO,
        env={"RANKZERO_CACHE": str(file) if place == "a file" else place, "PATH": "/nonexistent", "HOME": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "RANKZERO_CACHE" in done.stderr
    assert "Traceback" not in done.stderr
