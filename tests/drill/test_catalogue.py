"""The drills as a list, and what `make drill` says where one cannot be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest
import yaml

from scripts.cache import REPO
from scripts.drill.catalogue import DRILLS
from scripts.drill.plan import EVERY_STEPS
from scripts.drill.release import VALUES


def drill(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CLUSTER": "", "IMAGE": "", **(environment or {})}
    return subprocess.run(
        [sys.executable, "-m", "scripts.drill", *words], cwd=REPO, env=env, capture_output=True, text=True, check=False
    )


def test_names_are_unique_and_can_be_part_of_a_namespace() -> None:
    names = [drill.name for drill in DRILLS]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", name)] == []


def test_the_drills_count_with_the_checkpoints_of_their_experiment() -> None:
    values = yaml.safe_load((REPO / VALUES).read_text())
    assert values["train"]["checkpoint"]["everySteps"] == EVERY_STEPS
    assert values["train"]["logEverySteps"] == 1


def test_all_drills_are_listed_without_a_cluster() -> None:
    done = drill("list", environment={"KUBECONFIG": "/no/such/file"})
    assert done.returncode == 0
    assert [one.name for one in DRILLS if one.name not in done.stdout] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["no-such-drill"], "there is no drill 'no-such-drill'"),
        (["worker-killed", "--cluster", "existing"], "CLUSTER=existing needs IMAGE"),
    ],
)
def test_what_is_missing_is_said_with_its_fix(words: list[str], sentence: str) -> None:
    done = drill(*words)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr
