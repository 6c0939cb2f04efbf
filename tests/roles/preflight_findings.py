"""What the role preflight finds on a machine that is described instead of read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/preflight"
TABLES = load(ROLE / "vars/main/tables.yml")
DRIVER = {"nvidia_driver_source": "cuda_repo", "nvidia_driver_branch": 580}
"""What the inventory says where the role nvidia_driver takes care of the driver."""


def machine(sample: str) -> Any:
    """The facts of a sample machine."""
    return load(Path(__file__).parent / "samples" / f"{sample}.yml")


def findings(facts: Any, **variables: Any) -> list[dict[str, str]]:
    """What the role finds; without variables, where nobody takes care of the driver."""
    scope = {"machine_facts": facts, "role_path": str(ROLE), "nvidia_driver_source": "none", **variables}
    found: list[dict[str, str]] = evaluate(ROLE, "__preflight_findings", scope)
    return found


def found(facts: Any, words: str, **variables: Any) -> list[str]:
    """The severities of the findings whose sentence has the words."""
    return [finding["severity"] for finding in findings(facts, **variables) if words in finding["what"]]
