"""`make clean-cache` removes the cache folder, and never a folder that is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import clean
from scripts.cache import MARKER, cache_dir


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder with something in it."""
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "cache"))
    (cache_dir("logs") / "build.log").write_text("text", encoding="utf-8")
    return tmp_path / "cache"


def test_the_whole_folder_goes_with_read_only_folders_and_links(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = cache / "go" / "mod" / "example.org"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example.org", encoding="utf-8")
    module.chmod(0o500)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("", encoding="utf-8")
    (cache / "link").symlink_to(outside)
    assert clean.main() == 0
    assert not cache.exists()
    assert (outside / "kept").exists()
    said = capsys.readouterr().err
    assert f"Removed {cache}" in said
    for what_stays in (".venv", "build/", "localhost/rankzero/"):
        assert what_stays in said


def test_a_folder_without_our_marker_is_not_touched(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache.parent / "home"
    folder.mkdir(mode=0o755)
    (folder / "letters").mkdir(mode=0o750)
    monkeypatch.setenv("RANKZERO_CACHE", str(folder))
    assert clean.main() == 1
    assert "nothing was removed" in capsys.readouterr().err
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("letters", 0o750)]


def test_nothing_is_removed_while_a_cluster_runs_from_the_folder(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / "lab").mkdir()
    assert clean.main() == 1
    assert "make lab-down" in capsys.readouterr().err
    assert (cache / "logs" / "build.log").exists()


def test_no_folder_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "none"))
    assert clean.main() == 0
    assert not (tmp_path / "none").exists()


def test_a_linked_folder_is_emptied_and_its_link_stays_usable(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(cache)
    monkeypatch.setenv("RANKZERO_CACHE", str(link))
    assert clean.main() == 0
    assert list(cache.iterdir()) == []
    assert (cache_dir() / MARKER).exists()
