"""Every scenario in charts/rankzero/ci: its rendering is the one kept, and a cluster can take it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scripts.generate import files, golden, helm
from scripts.lab import programs
from tests.chart import kubernetes_types
from tests.chart.rendering import documents, run_config

MINORS = range(kubernetes_types.OLDEST, kubernetes_types.NEWEST + 1)
NATIVE_GANGS = {"gang-values", "kueue-values", "sixty-four-nodes-values"}
"""Scenarios with a field of pods that came with Kubernetes 1.37."""

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
    assert loaded.launch.script.endswith(".py") or loaded.launch.command


@pytest.mark.parametrize("minor", MINORS)
def test_every_kubernetes_that_the_chart_allows_knows_every_key(minor: int) -> None:
    found = [
        f"{scenario.stem}: {problem}"
        for scenario in golden.scenarios()
        for manifest in documents(golden.path(scenario).read_text(encoding="utf-8"))
        for problem in kubernetes_types.problems(manifest, minor)
    ]
    # 1.28 declares it required by mistake: its own documentation leaves it out.
    found = [problem for problem in found if not (minor == 28 and "'onPodConditions' is a required" in problem)]
    gangs = {problem.partition(": ")[0] for problem in found}
    assert found == [] if minor == kubernetes_types.NEWEST else gangs <= NATIVE_GANGS


def test_only_native_gangs_need_the_newest_kubernetes() -> None:
    texts = {path.stem: golden.path(path).read_text(encoding="utf-8") for path in golden.scenarios()}
    assert {name for name, text in texts.items() if "apiVersion: scheduling.k8s.io/v1beta1" in text} == NATIVE_GANGS


def test_the_versions_are_those_from_the_least_that_the_chart_allows_to_the_labs() -> None:
    chart = yaml.safe_load((files.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">=1.{kubernetes_types.OLDEST}.0-0"
    assert programs.kubernetes_version().startswith(f"v1.{kubernetes_types.NEWEST}.")


def test_the_comparison_with_the_api_finds_a_misspelt_key_a_wrong_type_and_an_unknown_kind() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"nam": "mnist"}, "spec": {"ports": [{"port": "1"}]}}
    assert kubernetes_types.problems(service) == [
        "Service.metadata: Additional properties are not allowed ('nam' was unexpected)",
        "Service.spec.ports.0.port: '1' is not of type 'integer'",
    ]
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "spec": {}}
    assert kubernetes_types.problems(group, minor=36) == ["PodGroup is unknown in v1beta1 of scheduling"]


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
    """But for claims of before, which may be refused: what is rendered does not depend on them."""
    impure = r"\b(now|date|ago|rand\w+|uuidv4|lookup|gen[A-Z]\w+|getHostByName)\b"
    for template in (files.CHART / "templates").iterdir():
        text = template.read_text(encoding="utf-8")
        actions = re.findall(r"\{\{-?(?!\s*/\*)(.*?)\}\}", text, re.DOTALL)
        calls = {call for action in actions for call in re.findall(impure, re.sub(r'"[^"]*"', "", action))}
        assert actions, template.name
        assert calls <= ({"lookup"} if template.name == "_validate-claims.tpl" else set()), template.name
