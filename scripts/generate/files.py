"""Where the generators read and write."""

from __future__ import annotations

from scripts.cache import REPO

CHART = REPO / "charts" / "rankzero"
TEMPLATES = CHART / "templates"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
DEFAULTS = TEMPLATES / "_defaults.tpl"
REFERENCE = REPO / "docs" / "values.md"
REFUSALS = REPO / "docs" / "refusals.md"
SCENARIOS = CHART / "ci"
GOLDEN = REPO / "tests" / "chart" / "golden"
DATA = REPO / "docs" / "data.md"
DRILLS = REPO / "docs" / "drills.md"
RECOVERY = REPO / "docs" / "recovery.md"
NODES = REPO / "docs" / "nodes.md"
FRONT_PAGE = REPO / "README.md"
SCALE = REPO / "docs" / "scale.md"
UPGRADES = REPO / "docs" / "upgrades.md"
PACKAGE_README = CHART / "README.md"
