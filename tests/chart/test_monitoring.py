"""What the chart makes for Prometheus and Grafana."""

from __future__ import annotations

import json
from typing import Any

from rankzero import contract
from scripts.generate import files, helm
from tests.chart.rendering import Manifest, minimal, only, refusals, render, trainer

DASHBOARD = {"monitoring.dashboard.enabled": True}


def dashboard(manifests: list[Manifest]) -> dict[str, Any]:
    """The dashboard in the ConfigMap."""
    (text,) = (text for one in manifests for key, text in one.get("data", {}).items() if key.endswith(".json"))
    found: dict[str, Any] = json.loads(text)
    return found


def test_nothing_is_made_unless_it_is_asked_for() -> None:
    kinds = [manifest["kind"] for manifest in render(minimal({}))]
    assert kinds.count("ConfigMap") == 1
    assert "PodMonitor" not in kinds


def test_the_pod_monitor_reads_the_port_that_the_launcher_serves_of_the_pods_that_the_chart_makes() -> None:
    manifests = render(minimal({"monitoring.podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}))
    monitor = only(manifests, "PodMonitor")
    template = only(manifests, "StatefulSet")["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in trainer(manifests)["ports"]}
    assert endpoint["path"] == "/metrics"
    assert template["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "mnist"


def test_a_pod_monitor_is_refused_where_no_operator_would_read_it() -> None:
    values = minimal({"monitoring.podMonitor.enabled": True})
    assert refusals(values, optional_apis=()) == [
        "monitoring.podMonitor.enabled is true but this cluster does not serve monitoring.coreos.com/v1 PodMonitor: "
        "install the Prometheus operator, or set it to false and have Prometheus find the pods' port `status` by itself"
    ]
    assert render(minimal({}), optional_apis=())


def test_a_pod_monitor_behind_a_policy_that_lets_nobody_in_is_refused() -> None:
    closed = {"monitoring.podMonitor.enabled": True, "networkPolicy.statusFromAnywhere": False}
    (sentence,) = refusals(minimal(closed))
    assert sentence.startswith("monitoring.podMonitor.enabled is true but networkPolicy.statusFromAnywhere is false")
    assert render(minimal({**closed, "networkPolicy.enabled": False}))
    assert render(minimal({**closed, "networkPolicy.ingress": [{"from": [{"namespaceSelector": {}}]}]}))


def test_a_dashboard_that_no_sidecar_would_find_is_refused() -> None:
    (sentence,) = refusals(minimal({**DASHBOARD, "monitoring.dashboard.labels": {"grafana_dashboard": None}}))
    assert sentence.startswith("monitoring.dashboard.labels is empty but monitoring.dashboard.enabled is true")
    assert only_dashboard_labels(minimal(DASHBOARD))["grafana_dashboard"] == "1"


def only_dashboard_labels(values: dict[str, Any]) -> dict[str, str]:
    (found,) = (one for one in render(values) if one["metadata"]["name"].endswith("-dashboard"))
    labels: dict[str, str] = found["metadata"]["labels"]
    return labels


def test_each_release_has_a_dashboard_of_its_own_that_shows_it() -> None:
    """Grafana takes only one dashboard with the same uid."""
    found, other = dashboard(render(minimal(DASHBOARD))), dashboard(render(minimal(DASHBOARD), release="other"))
    assert found["uid"] != other["uid"]
    assert found["title"] == f"rankzero {helm.NAMESPACE}/mnist"
    assert len(found["uid"]) <= 40  # Grafana's limit
    chosen = {one["name"]: one.get("current", {}).get("value") for one in found["templating"]["list"]}
    assert chosen == {"datasource": None, "namespace": helm.NAMESPACE, "run": "mnist"}


def test_the_dashboard_in_the_release_is_the_one_in_the_chart_otherwise() -> None:
    """Helm reads and writes it once, and must not turn whole numbers into others."""
    kept = json.loads((files.CHART / "dashboards/run.json").read_text(encoding="utf-8"))
    assert dashboard(render(minimal(DASHBOARD)))["panels"] == kept["panels"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads((files.CHART / "dashboards/run.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels)
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23  # Grafana's grid has 24 columns


def test_the_status_port_has_the_name_that_the_contract_gives_it() -> None:
    (endpoint,) = only(render(minimal({"monitoring.podMonitor.enabled": True})), "PodMonitor")["spec"][
        "podMetricsEndpoints"
    ]
    assert endpoint["port"] == contract.STATUS_PORT_NAME
