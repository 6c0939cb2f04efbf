"""Filters of the role preflight: its findings for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

SEVERITIES = ("error", "warning", "info")


def by_severity(findings: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The findings, the gravest first."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding["severity"]))


def text(findings: Sequence[Mapping[str, str]]) -> list[str]:
    """A paragraph for each finding."""
    return [f"{finding['severity']}: {finding['what']} -> {finding['fix']}" for finding in findings]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {"preflight_by_severity": by_severity, "preflight_text": text}
