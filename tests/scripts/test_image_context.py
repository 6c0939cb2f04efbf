"""What the builds may see."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from scripts.image import context


def content(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file below ``folder`` with its hash, permissions and modification time."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mode,
            int(path.stat().st_mtime),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_sources_give_the_same_context_and_nothing_beside_what_is_copied() -> None:
    with context.staging() as first, context.staging() as second:
        context.stage_trainer(first)
        context.stage_trainer(second)
        assert content(first) == content(second)
        (wheel,) = first.glob("*.whl")
        assert {path.name for path in first.iterdir()} == {
            *("Containerfile", "compile_bytecode.py", "requirements.txt", "examples"),
            wheel.name,
        }
        assert not list(first.rglob("__pycache__"))
        assert sum(path.stat().st_size for path in first.rglob("*")) < 5_000_000
    assert not first.exists()


def test_every_requirement_of_the_image_is_pinned_and_hashed() -> None:
    requirements = context.requirements("--no-dev")
    names = [line for line in requirements.splitlines() if line and not line.startswith((" ", "#"))]
    assert any(name.startswith("pyyaml==") for name in names)
    assert all("==" in name for name in names)
    assert requirements.count("--hash=sha256:") >= len(names)
    assert "torch" not in requirements


def test_packages_of_extras_are_in_the_image_where_they_are_asked_for(tmp_path: Path) -> None:
    extras = context.check_extras(["wandb", "mlflow", "wandb"])
    assert extras == ("mlflow", "wandb")
    for folder, chosen in {"plain": (), "asked": extras}.items():
        (tmp_path / folder).mkdir()
        context.stage_trainer(tmp_path / folder, chosen)
    plain, asked = ((tmp_path / folder / "requirements.txt").read_text() for folder in ("plain", "asked"))
    for package in ("wandb==", "mlflow-skinny=="):
        assert package in asked
        assert package not in plain
    assert "obstore==" in plain
    assert "numpy==" not in asked  # the base's stays the only one


def test_the_stand_in_gets_exactly_the_locked_torch() -> None:
    assert f"torch=={context.locked_version('torch')} " in context.requirements("--only-group", "torch")


def test_a_machine_without_uv_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    with pytest.raises(context.MissingToolError, match="uv was not found"):
        context.find_uv()
