"""The drills as a list, and what `make drill` says where one cannot be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.cache import REPO
from scripts.drill import results
from scripts.drill.catalogue import DRILLS, named
from scripts.drill.ground import Ground
from scripts.drill.judge import Verdict
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
        (["worker-killed", "--cluster", "existing", "--keep"], "--keep is for the local cluster"),
    ],
)
def test_what_is_missing_is_said_with_its_fix(words: list[str], sentence: str) -> None:
    done = drill(*words)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_in_the_environment_is_not_that_of_a_drill() -> None:
    def said(*words: str) -> str:
        environment = {**os.environ, "NAME": "all"}
        command = ["make", "--dry-run", "drill", "CLUSTER=existing", *words]
        return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=True).stdout

    assert "scripts.drill list" in said()
    assert "scripts.drill worker-killed" in said("NAME=worker-killed")


def test_results_of_sharded_and_of_whole_state_stand_beside_each_other() -> None:
    verdict = Verdict(1.0, (), 0, ())
    ground = Ground(None, Path("kubectl"), Path("helm"), "registry.example.com/trainer:1", (), is_lab=True)
    drill = named("worker-killed")
    document = results._with(None, drill, verdict, replace(ground, strategy="fsdp"))
    document = results._with(document, drill, replace(verdict, seconds=2.0), ground)
    assert [(name, one["strategy"], one["seconds"]) for name, one in document["drills"].items()] == [
        ("worker-killed", "ddp", 2.0),
        ("worker-killed (fsdp)", "fsdp", 1.0),
    ]
    assert {name: target["met"] for name, target in document["targets"].items()} == {
        "worker-killed": False,
        "worker-killed (fsdp)": True,
    }


def test_a_result_that_fell_short_meets_no_target() -> None:
    verdict = Verdict(1.0, (), 0, ())
    ground = Ground(None, Path("kubectl"), Path("helm"), "registry.example.com/trainer:1", (), is_lab=True)
    drill = named("worker-killed")

    def target(verdict: Verdict) -> dict[str, Any]:
        found: dict[str, Any] = results._with(None, drill, verdict, ground)["targets"]["worker-killed"]
        return found

    assert target(verdict) == {"value": 1.0, "target": 1.5, "met": True}
    assert not target(replace(verdict, seconds=1.6))["met"]
    assert not target(replace(verdict, shortfalls=("something",)))["met"]
    assert not target(replace(verdict, seconds=None))["met"]
