"""Sources of packages: what apt and dnf would read counts, and nothing that is switched off or left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.container_runtime.module_utils.container_runtime import sources
from tests.roles.container_runtime_node import machine, node, on, prepared

WORD = "libnvidia-container"
URI = f"https://nvidia.github.io/{WORD}/stable/deb/amd64"
FOLDER = "/etc/apt/sources.list.d"
STANZA = f"Types: deb\nURIs: {URI}\nSuites: /\n"


def found(root: Path, name: str, text: str) -> dict[str, list[str]]:
    file = root / name.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return sources.uris(["/etc/apt/sources.list", FOLDER, "/etc/yum.repos.d"], root, WORD)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("/etc/apt/sources.list", f"deb {URI} /\n"),
        (f"{FOLDER}/a.list", f"deb [arch=amd64 signed-by=/k.asc] {URI} /\n"),
        (f"{FOLDER}/a.sources", STANZA),
        (
            f"{FOLDER}/a.sources",
            f"# old\nTypes: deb-src\nURIs: https://x.example\n\nTypes: deb\nURIs:\n {URI}\nEnabled: yes\n",
        ),
        ("/etc/yum.repos.d/a.repo", f"[a]\nbaseurl={URI}\n"),
    ],
    ids=["main file", "one line", "stanza", "stanza over lines", "dnf"],
)
def test_a_source_that_is_read_counts(tmp_path: Path, name: str, text: str) -> None:
    assert found(tmp_path, name, text) == {name: [URI]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{FOLDER}/a.list.save", f"deb {URI} /\n"),
        (f"{FOLDER}/a.list.distUpgrade", f"deb {URI} /\n"),
        (f"{FOLDER}/a.list", f"# deb {URI} / # disabled on upgrade to noble\n"),
        (f"{FOLDER}/a.sources", f"Enabled: no\n{STANZA}"),
        ("/etc/yum.repos.d/a.repo", f"[a]\nbaseurl={URI}\nenabled=0\n"),
        ("/etc/yum.repos.d/a.repo", f"baseurl={URI}\n"),
    ],
    ids=["saved", "left by an upgrade", "commented out", "stanza off", "dnf off", "not a repository"],
)
def test_a_source_that_is_switched_off_or_left_over_does_not(tmp_path: Path, name: str, text: str) -> None:
    assert found(tmp_path, name, text) == {}


def test_a_mirror_that_somebody_s_own_source_comes_before_is_told() -> None:
    described = node(facts=machine(gpus=1), sources={f"{FOLDER}/a.list": [URI]})

    assert on("__container_runtime_source_differs", described) is False
    assert on("__container_runtime_source_differs", described, toolkit_repository="https://mirror.example/c") is True


def test_a_toolkit_is_not_taken_back_to_an_older_one() -> None:
    described = prepared(facts=machine(gpus=1), toolkit={"runtime": "/usr/bin/x", "version": "1.20.2"})

    (refusal,) = on("__container_runtime_refusals", described, toolkit_version="1.18.0")

    assert "older than 1.20.2" in refusal
    assert on("__container_runtime_refusals", described, toolkit_version="1.21.0") == []
