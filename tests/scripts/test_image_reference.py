"""Tags and references of the trainer image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import command
from scripts.image import reference
from scripts.image.reference import ImageNameError

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository of its own with one commit, in the place of this one."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "code.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n', encoding="utf-8")
    (tmp_path / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    for words in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", "one"],
    ):
        command.run(["git", "-C", tmp_path, *words])
    monkeypatch.setattr(reference, "REPO", tmp_path)
    return tmp_path


def revision(checkout: Path) -> str:
    return command.run(["git", "-C", checkout, "rev-parse", "--short=12", "HEAD"]).strip()


def test_a_clean_tree_is_named_by_version_and_revision(checkout: Path) -> None:
    assert reference.default_tag() == f"1.2.3-g{revision(checkout)}"


def test_another_base_than_production_is_part_of_the_tag(checkout: Path) -> None:
    assert reference.default_tag("0123abcd") == f"1.2.3-g{revision(checkout)}-base.0123abcd"
    assert reference.default_tag("", ("mlflow", "wandb")) == f"1.2.3-g{revision(checkout)}-with.mlflow-with.wandb"


def test_every_uncommitted_content_has_a_tag_of_its_own(checkout: Path) -> None:
    tags = [reference.default_tag()]
    for text in ("x = 2\n", "x = 3\n"):
        (checkout / "trainer" / "code.py").write_text(text, encoding="utf-8")
        tags.append(reference.default_tag())
    (checkout / "trainer" / "new.py").write_text("", encoding="utf-8")
    tags.append(reference.default_tag())
    (checkout / "trainer" / "new.py").write_text("y = 1\n", encoding="utf-8")
    tags.append(reference.default_tag())

    assert len(set(tags)) == len(tags)
    assert all("-dirty." in tag for tag in tags[1:])


def test_changes_that_are_no_utf_8_or_differ_in_line_ends_alone_have_tags_of_their_own(checkout: Path) -> None:
    tags = set()
    for content in (b"name = 'Jos\xe9'\n", b"name = 'Jos\xe8'\n", b"x = 2\n", b"x = 2\r\n"):
        (checkout / "trainer" / "code.py").write_bytes(content)
        tags.add(reference.default_tag())
    (checkout / "trainer" / os.fsdecode(b"caf\xe9.py")).write_text("", encoding="utf-8")
    tags.add(reference.default_tag())
    assert len(tags) == 5


def test_what_does_not_enter_the_image_does_not_change_the_tag(checkout: Path) -> None:
    clean = reference.default_tag()
    (checkout / "docs").mkdir()
    (checkout / "docs" / "note.md").write_text("later", encoding="utf-8")
    (checkout / "trainer" / "__pycache__").mkdir()
    (checkout / "trainer" / "__pycache__" / "code.pyc").write_bytes(b"x")

    assert reference.default_tag() == clean


def test_a_folder_that_is_no_checkout_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "REPO", tmp_path)
    with pytest.raises(command.CommandError, match="git checkout"):
        reference.default_tag()


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ("https://example.org/team/rankzero.git", "https://example.org/team/rankzero.git"),
        ("https://me:secret@example.org/team/rankzero.git", "https://example.org/team/rankzero.git"),
        ("git@example.org:team/rankzero.git", "git@example.org:team/rankzero.git"),
        ("/srv/git/rankzero", ""),
        ("file:///srv/git/rankzero", ""),
    ],
)
def test_the_source_label_is_an_address_without_credentials(checkout: Path, origin: str, source: str) -> None:
    command.run(["git", "-C", checkout, "remote", "add", "origin", origin])
    assert reference.source() == source


@pytest.mark.usefixtures("checkout")
def test_a_checkout_without_an_origin_has_no_source() -> None:
    assert reference.source() == ""


@pytest.mark.parametrize("tag", ["latest", "", "-first", "a b", "a/b", "a:b", "a+b", "x" * 129])
def test_moving_and_malformed_tags_are_refused(tag: str) -> None:
    with pytest.raises(ImageNameError):
        reference.check_tag(tag)


@pytest.mark.parametrize("tag", ["1.4.0", "0.1.0-g0123abcd-dirty.01234567", "_x", "x" * 128])
def test_proper_tags_are_accepted(tag: str) -> None:
    assert reference.check_tag(tag) == tag


@pytest.mark.parametrize("base", ["pytorch", "docker.io/pytorch/pytorch", "registry:5000/pytorch", "pytorch:latest"])
def test_a_base_without_a_version_is_refused(base: str) -> None:
    with pytest.raises(ImageNameError, match="another image every day"):
        reference.check_base(base)


@pytest.mark.parametrize("base", ["pytorch:2.13.0", f"pytorch@{DIGEST}", f"registry:5000/pytorch:latest@{DIGEST}"])
def test_a_base_with_a_version_or_digest_is_accepted(base: str) -> None:
    assert reference.check_base(base) == base


@pytest.mark.parametrize("repository", ["", "team/trainer:1.0", f"team/trainer@{DIGEST}"])
def test_a_repository_with_a_tag_or_without_a_name_is_refused(repository: str) -> None:
    with pytest.raises(ImageNameError, match="IMAGE_REPOSITORY"):
        reference.check_repository(repository)


def test_an_image_that_has_no_registry_cannot_be_pushed() -> None:
    with pytest.raises(ImageNameError, match="no place to push to"):
        reference.check_pushable("localhost/rankzero/trainer")
    assert reference.check_pushable("localhost:5001/trainer") == "localhost:5001/trainer"


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("pytorch", "docker.io"),
        ("pytorch/pytorch:2.13.0", "docker.io"),
        ("docker.io/pytorch/pytorch", "docker.io"),
        ("ghcr.io/team/trainer", "ghcr.io"),
        ("registry:5000/trainer:1", "registry:5000"),
        ("localhost/trainer", "localhost"),
    ],
)
def test_the_registry_is_read_as_engines_read_it(name: str, registry: str) -> None:
    assert reference.registry_of(name) == registry


def test_a_reference_is_split_at_its_own_colon_not_at_the_registry_port() -> None:
    assert reference.split(f"registry:5000/a/b:1.0@{DIGEST}") == ("registry:5000/a/b", "1.0", DIGEST)
    assert reference.split("registry:5000/a/b") == ("registry:5000/a/b", "", "")
