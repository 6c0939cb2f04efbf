"""Every scenario in charts/rankzero/ci: its rendering is the one kept, and a cluster can take it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.generate import files, golden, helm
from tests.chart import kubernetes_types
from tests.chart.rendering import documents, run_config

SCENARIOS = pytest.mark.parametrize("scenario", golden.scenarios(), ids=lambda path: path.stem)


@SCENARIOS
def test_the_rendering_is_the_golden_one(scenario: Path) -> None:
    """`python -m scripts.generate --golden` rewrites it; the difference belongs into the review."""
    assert golden.render(scenario) == golden.path(scenario).read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_a_scenario() -> None:
    assert sorted(files.GOLDEN.iterdir()) == sorted(golden.path(scenario) for scenario in golden.scenarios())


@SCENARIOS
def test_the_launcher_loads_the_settings(scenario: Path, tmp_path: Path) -> None:
    loaded = run_config(documents(golden.render(scenario)), tmp_path)
    assert loaded.launch.script.endswith(".py")


@SCENARIOS
def test_the_kubernetes_api_knows_every_key(scenario: Path) -> None:
    found = [
        problem for manifest in documents(golden.render(scenario)) for problem in kubernetes_types.problems(manifest)
    ]
    assert found == []


def test_the_comparison_with_the_api_finds_a_misspelt_key_and_a_wrong_type() -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"nam": "mnist"},
        "spec": {"ports": [{"port": "29500"}]},
    }
    assert kubernetes_types.problems(manifest) == [
        "Service.metadata.nam is unknown",
        "Service.spec.ports[0].port is '29500', not int",
    ]


def test_the_comparison_with_a_custom_resource_finds_a_misspelt_key() -> None:
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {"minMembers": 2}}
    assert kubernetes_types.problems(group) == [
        "PodGroup.spec: Additional properties are not allowed ('minMembers' was unexpected)",
        "PodGroup.spec: 'minMember' is a required property",
    ]


@SCENARIOS
def test_no_object_names_a_cluster_domain_or_a_namespace_of_its_own(scenario: Path) -> None:
    """Known failure A4: a name with a domain in it is another name in another cluster."""
    text = golden.render(scenario)
    assert re.findall(r"[\w.-]*(?:\.svc\b|cluster\.local)[\w.-]*", text) == []
    assert set(re.findall(r"namespace: *\"?([\w-]+)", text)) == {helm.NAMESPACE}


@SCENARIOS
def test_helm_lint_has_nothing_to_say(scenario: Path) -> None:
    assert "0 chart(s) failed" in helm.helm("lint", "--strict", files.CHART, "--values", scenario)


def test_helm_lint_accepts_the_default_values() -> None:
    assert "0 chart(s) failed" in helm.helm("lint", "--strict", files.CHART)


@SCENARIOS
def test_rendering_twice_gives_the_same_bytes(scenario: Path) -> None:
    assert golden.render(scenario) == golden.render(scenario)


def test_no_template_reads_a_clock_a_random_number_or_the_cluster() -> None:
    impure = r"\b(now|date|ago|rand\w+|uuidv4|lookup|gen[A-Z]\w+|getHostByName)\b"
    for template in (files.CHART / "templates").iterdir():
        text = template.read_text(encoding="utf-8")
        actions = re.findall(r"\{\{-?(?!\s*/\*)(.*?)\}\}", text, re.DOTALL)
        calls = [re.findall(impure, re.sub(r'"[^"]*"', "", action)) for action in actions]
        assert actions, template.name
        assert not any(calls), f"{template.name} calls {calls}"
