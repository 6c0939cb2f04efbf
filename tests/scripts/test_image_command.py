"""The command line of the image build."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts.cache import REPO
from scripts.image.__main__ import parse
from scripts.image.build import Choices


def test_nothing_said_means_the_production_base_and_a_tag_that_is_found_out() -> None:
    empty = {"ENGINE": "", "BASE": "", "IMAGE_REPOSITORY": "", "TAG": ""}
    assert (
        parse([], empty)
        == parse([], {})
        == (Choices("", "production", "localhost/rankzero/trainer", "", False, ()), False)
    )


def test_makes_variables_are_taken_and_a_flag_wins_over_its_variable() -> None:
    environ = {"ENGINE": "buildah", "BASE": "local", "IMAGE_REPOSITORY": "ghcr.io/team/trainer", "TAG": "1.0"}
    environ["EXTRAS"] = "wandb mlflow"
    assert parse([], environ)[0] == Choices(
        "buildah", "local", "ghcr.io/team/trainer", "1.0", False, ("wandb", "mlflow")
    )
    flags = [
        "--engine=podman",
        "--base=auto",
        "--repository=b/c",
        "--tag=2.0",
        "--push",
        "-o",
        "json",
        "--extras=mlflow",
    ]
    assert parse(flags, environ) == (Choices("podman", "auto", "b/c", "2.0", True, ("mlflow",)), True)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TAG": "latest"}, "the tag `latest` names another image every day"),
        ({"BASE": "pytorch/pytorch"}, "BASE is 'pytorch/pytorch', which names another image every day"),
        ({"BASE": "pytorch/pytorch:latest"}, "BASE is 'pytorch/pytorch:latest', which names another image every day"),
        ({"EXTRAS": "wandb,cluster"}, "EXTRAS names 'cluster'"),
        ({"ENGINE": "lxc"}, "ENGINE is 'lxc'"),
        ({"IMAGE_REPOSITORY": "team/trainer:1"}, "IMAGE_REPOSITORY is 'team/trainer:1'"),
    ],
)
def test_a_wrong_choice_ends_with_one_sentence_and_its_fix(variables: dict[str, str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.image"],
        env={**os.environ, "PYTHONPATH": "trainer", **variables},
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    error, fix = done.stderr.splitlines()
    assert done.returncode != 0
    assert done.stdout == ""
    assert error == f"error: {sentence}"
    assert fix.startswith("  fix: ")
