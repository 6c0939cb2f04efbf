"""Ansible filter of the playbooks: which nodes are taken together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def batches(nodes: Sequence[str], plan: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The ``nodes`` in the order and the groups in which the playbooks take them.

    First, all at once, those that nothing allows to interrupt. Then those with leave, ``serial`` at once and never of
    two failure domains, domain after domain. ``plan`` is the result of the action site_arguments.
    """
    careful = [node for node in nodes if plan[node]["leave"]]
    together = [node for node in nodes if not plan[node]["leave"]]
    found = [together] if together else []
    if careful:
        size = _size(plan[careful[0]]["serial"], len(careful))
        # By first appearance, so that the inventory decides the order.
        for domain in dict.fromkeys(plan[node]["domain"] for node in careful):
            members = [node for node in careful if plan[node]["domain"] == domain]
            found += [members[start : start + size] for start in range(0, len(members), size)]
    return found


def _size(serial: str, nodes: int) -> int:
    share = serial.removesuffix("%")
    return int(serial) if share == serial else max(1, nodes * int(share) // 100)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filter by the name that the playbooks use."""
        return {"site_batches": batches}
