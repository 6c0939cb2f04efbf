"""Filters of the role node_profile: what the other roles' reports come to. Pure functions of their arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

HASH_DIGITS = 12
"""Hexadecimal digits of the hash in the label, as the contract has it."""

CONTENT = ("ok", "skipped")
"""The states of a role in which a node may carry the label."""

Report = Mapping[str, Any]


def reports(variables: Mapping[str, Any], roles: Sequence[str]) -> dict[str, Report]:
    """By role, the report that it left among the node's ``variables``; without the roles that did not run."""
    return {role: variables[f"{role}_report"] for role in roles if f"{role}_report" in variables}


def profile_hash(found: Mapping[str, Report]) -> str:
    """Of what was asked of all roles: nodes on which the same roles were asked for the same have the same hash."""
    asked = {role: report["asked"] for role, report in found.items() if report["asked"]}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:HASH_DIGITS]


def obstacles(found: Mapping[str, Report]) -> list[str]:
    """A sentence for each role that is not content; a node about which no role has said anything has one as well."""
    if not found:
        return ["no role has said what it found on the node"]
    return [
        f"{role}: {report['why'] or report['status']}"
        for role, report in found.items()
        if report["status"] not in CONTENT
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "node_profile_reports": reports,
            "node_profile_hash": profile_hash,
            "node_profile_obstacles": obstacles,
        }
