"""Filters of the role preflight: its findings as a report and for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

SEVERITIES = ("error", "warning", "info")


def report(findings: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The findings, the gravest first, and what they come to: ``status`` and ``why``."""
    ordered = sorted(findings, key=lambda finding: SEVERITIES.index(finding["severity"]))
    errors = [finding["what"] for finding in ordered if finding["severity"] == "error"]
    return {"status": "failed" if errors else "ok", "why": errors[0] if errors else "", "findings": ordered}


def text(findings: Iterable[Mapping[str, str]]) -> list[str]:
    """A paragraph for each finding."""
    return [f"{finding['severity']}: {finding['what']} -> {finding['fix']}" for finding in findings]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {"preflight_report": report, "preflight_text": text}
