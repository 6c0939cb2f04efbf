"""The chart's scenarios (``charts/rankzero/ci``) and their renderings (``tests/chart/golden``)."""

from __future__ import annotations

from pathlib import Path

from scripts.generate import files, helm

RELEASE = "mnist"


def scenarios() -> list[Path]:
    """Values files, each one use of the chart."""
    return sorted(files.SCENARIOS.glob("*-values.yaml"))


def path(scenario: Path) -> Path:
    """Where the scenario's rendering is kept."""
    return files.GOLDEN / f"{scenario.stem.removesuffix('-values')}.yaml"


def render(scenario: Path) -> str:
    """What Helm makes of the scenario now."""
    return helm.template(RELEASE, scenario)
