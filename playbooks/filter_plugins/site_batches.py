"""Ansible filters of the playbooks: which nodes are taken together, and which are one and the same."""

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


def namesakes(nodes: Sequence[str], plan: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any]) -> list[str]:
    """A sentence on each name in Kubernetes that several ``nodes`` of one cluster have.

    ``variables`` are `hostvars`; where a node was not read yet, only a name that it was given is known.
    """
    known: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        name = plan[node]["name"] or variables[node].get("machine_facts", {}).get("hostname", "").lower()
        if name:
            known.setdefault((name, plan[node]["cluster"]), []).append(node)
    return [
        f"{', '.join(found)} are all the node {name}. Have each machine in the inventory once, and give each a host"
        " name of its own, or in machine_node_name the one that its kubelet was given."
        for (name, _), found in known.items()
        if len(found) > 1
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the playbooks use."""
        return {"site_batches": batches, "site_namesakes": namesakes}
