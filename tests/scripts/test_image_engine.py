"""The command lines of the three engines, and how their answers are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.image import engine
from scripts.image.engine import Build, EngineError, EngineName, ImageFacts

BUILD = Build(
    context=Path("/context"),
    tag="localhost/trainer:1",
    args={"BASE_IMAGE": "pytorch:1"},
    labels={"version": "1"},
    secrets={"pip-conf": Path("/private/pip.conf")},
    from_environment=("https_proxy",),
)
COMMON = [
    *("--build-arg", "BASE_IMAGE=pytorch:1"),
    *("--label", "version=1"),
    *("--build-arg", "https_proxy"),
    *("--secret", "id=pip-conf,src=/private/pip.conf"),
]
HEAD = ["build", "--file", "/context/Containerfile", "--tag", "localhost/trainer:1", "--network", "host"]


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_podman_and_buildah_build_in_cached_layers_and_never_pull_by_themselves(name: EngineName) -> None:
    assert engine.build_command(name, BUILD) == [
        *(name, *HEAD),
        *("--pull=never", "--layers=true"),
        *COMMON,
        "/context",
    ]


def test_docker_builds_with_the_same_arguments_and_secrets() -> None:
    assert engine.build_command("docker", BUILD) == ["docker", *HEAD, *COMMON, "/context"]
    assert engine.environment("docker") == {"DOCKER_BUILDKIT": "1"}


@pytest.mark.parametrize(
    ("name", "flag"), [("podman", "--layers=false"), ("buildah", "--layers=false"), ("docker", "--no-cache")]
)
def test_a_build_without_cache_says_so_in_each_engines_words(name: EngineName, flag: str) -> None:
    assert flag in engine.build_command(name, Build(Path("/context"), "a:1", cached=False))


def test_the_value_of_an_environment_argument_is_not_in_the_command_line() -> None:
    assert not [word for word in engine.build_command("podman", BUILD) if word.startswith("https_proxy=")]


@pytest.mark.parametrize(
    ("name", "reference", "words"),
    [
        ("podman", "ghcr.io/a:1", ["podman", "push", "ghcr.io/a:1"]),
        ("podman", "localhost:5001/a:1", ["podman", "push", "--tls-verify=false", "localhost:5001/a:1"]),
        ("buildah", "localhost:5001/a:1", ["buildah", "push", "--tls-verify=false", "localhost:5001/a:1"]),
        ("docker", "localhost:5001/a:1", ["docker", "push", "localhost:5001/a:1"]),
    ],
)
def test_only_a_registry_of_this_machine_is_pushed_to_without_tls(
    name: EngineName, reference: str, words: list[str]
) -> None:
    assert engine.push_command(name, reference) == words


def test_podmans_description_of_an_image_is_understood() -> None:
    text = json.dumps([{"Id": "ab" * 32, "Digest": "sha256:" + "cd" * 32, "Size": 3400, "RepoDigests": []}])
    assert engine.read_inspection("podman", text) == ImageFacts("sha256:" + "ab" * 32, "sha256:" + "cd" * 32, 3400)


def test_dockers_description_of_an_image_is_understood() -> None:
    pulled = {"Id": "sha256:" + "ab" * 32, "RepoDigests": ["pytorch@sha256:" + "cd" * 32], "Size": 3400}
    built_here = {"Id": "sha256:" + "ab" * 32, "RepoDigests": [], "Size": 3400}
    assert engine.read_inspection("docker", json.dumps([pulled])).digest == "sha256:" + "cd" * 32
    assert engine.read_inspection("docker", json.dumps([built_here])).digest == "sha256:" + "ab" * 32


def test_buildahs_description_of_an_image_is_understood() -> None:
    manifest = json.dumps({"layers": [{"size": 3000}, {"size": 400}]})
    text = json.dumps({"FromImageID": "ab" * 32, "FromImageDigest": "sha256:" + "cd" * 32, "Manifest": manifest})
    assert engine.read_inspection("buildah", text) == ImageFacts("sha256:" + "ab" * 32, "sha256:" + "cd" * 32, 3400)


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EngineError, match="podman, docker, buildah"):
        engine.find("lxc")


def test_a_machine_without_an_engine_learns_why_each_was_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        engine.find()
    assert all(f"{name} is not installed" in caught.value.message for name in engine.ENGINES)
    assert "apt-get install podman" in caught.value.hint


def test_an_engine_that_is_installed_but_does_not_answer_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, status in (("podman", 1), ("docker", 1), ("buildah", 0)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert engine.find().name == "buildah"
    with pytest.raises(EngineError, match="docker version"):
        engine.find("docker")
