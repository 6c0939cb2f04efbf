"""The operators that the local cluster can be given: what is chosen, and what is written down of each."""

from __future__ import annotations

import re

import pytest
import yaml

from rankzero.errors import ConfigError
from scripts.lab.operators import catalogue, manifest


def test_what_an_operator_needs_is_installed_before_it() -> None:
    chosen = [operator.name for operator in catalogue.chosen(["trainer", "training-operator"])]
    assert chosen == ["training-operator", "jobset", "trainer"]


def test_an_unknown_operator_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no operator volcano") as raised:
        catalogue.chosen(["kueue", "volcano"])
    assert "hami-scheduler" in str(raised.value.hint)


@pytest.mark.parametrize("operator", catalogue.OPERATORS, ids=catalogue.names())
def test_its_version_is_pinned_and_its_manifests_come_from_the_same_module(operator: catalogue.Operator) -> None:
    assert re.fullmatch(r"v\d+\.\d+\.\d+", operator.version)
    kustomization = yaml.safe_load((operator.folder / "kustomization.yaml").read_text(encoding="utf-8"))
    upstream = [path for path in kustomization["resources"] if path.startswith(f"../{manifest.UPSTREAM}/")]
    assert bool(upstream) is bool(operator.manifests)
    assert kustomization["components"] == [f"../{manifest.COMMON.name}"]
