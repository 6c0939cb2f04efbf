"""The chart's Grafana dashboard asks for figures that real launchers serve."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scripts.cache import REPO
from tests.launch.conftest import MakeGroup
from tests.launch.test_status_page import page
from tests.waiting import until

pytestmark = pytest.mark.slow

DASHBOARD = json.loads((REPO / "charts/rankzero/dashboards/run.json").read_text(encoding="utf-8"))
GIVEN_BY_PROMETHEUS = {"namespace", "job"}


def queries() -> Iterator[str]:
    """All that the dashboard asks Prometheus."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["query"] for one in DASHBOARD["templating"]["list"] if "label_values" in one["query"])


def asked() -> dict[str, set[str]]:
    """Labels that are asked for by name of the figure."""
    found: dict[str, set[str]] = {}
    for query in queries():
        grouped = re.findall(r"\bby \((\w+)\)", query)
        for name, matchers in re.findall(r"\b(rankzero_\w+)(?:\{([^}]*)\})?", query):
            found.setdefault(name, set()).update(re.findall(r"(\w+)=", matchers), grouped)
    return found


def served(text: str) -> dict[str, set[str]]:
    """Labels by name of the figure, as a Prometheus server reads a page."""
    families: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    for sample in (one for family in text_string_to_metric_families(text) for one in family.samples):
        families[sample.name] |= sample.labels.keys()
    return families


def test_every_figure_of_the_dashboard_is_on_the_page_of_a_run_that_has_failed_once_and_trains(
    make_group: MakeGroup,
) -> None:
    group = make_group("step", procs=2).start()
    os.kill(int(group.wait_for_workers(1, 4)[3]["pid"]), signal.SIGKILL)
    group.wait_for_workers(2, 4)

    wanted = asked()
    assert len(wanted) > 10

    def whole_page() -> dict[str, set[str]]:
        found = served(page(group.pods[0], "/metrics")[1])
        return found if wanted.keys() <= found.keys() and found.get("rankzero_rank_step") else {}

    figures = until(whole_page, what="a page of the second attempt with all that the dashboard asks for")
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert {name: labels - figures[name] - GIVEN_BY_PROMETHEUS for name, labels in wanted.items()} == {
        name: set() for name in wanted
    }


def test_legends_name_labels_that_the_query_leaves() -> None:
    def legends(panel: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
        for target in panel["targets"]:
            yield target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))

    for panel in DASHBOARD["panels"]:
        for query, labels in legends(panel):
            kept = {"rank"} if query.startswith("topk") else set(re.findall(r"\bby \((\w+)\)", query))
            assert labels <= kept, panel["title"]


def test_every_query_is_about_one_run() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            selectors = re.findall(r"rankzero_\w+(\{[^}]*\})?", target["expr"])
            assert set(selectors) == {'{namespace="$namespace", job="$run"}'}, panel["title"]
