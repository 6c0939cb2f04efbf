"""Strangers at the rendezvous port: many connections of no member, and a member that has to get in among them."""

from __future__ import annotations

import json

from rankzero import contract
from rankzero.errors import ClusterError
from scripts.drill import node_faults
from scripts.drill.release import NAME
from scripts.drill.scene import Scene

CONNECTIONS = 500
SECONDS = 15.0
"""How long they stand: three times what the coordinator waits for a greeting."""


def kill_launcher_in_a_crowd(scene: Scene) -> None:
    """While :data:`CONNECTIONS` strangers stand at the coordinator, SIGKILL the launcher of pod 1; it has to get in.

    Raises :class:`ClusterError` where the strangers did not stand, or were not dropped.
    """
    words = (f"{scene.pod(0)}.{NAME}", str(contract.RENDEZVOUS_PORT), str(CONNECTIONS), str(SECONDS))
    with scene.release.meanwhile_in_pod(scene.pod(0), "crowd", *words) as crowd:
        assert crowd.stdout is not None
        if crowd.stdout.readline().strip() != "stands":
            raise ClusterError(f"there were no {CONNECTIONS} connections to {words[0]}", hint="see what it says above")
        node_faults.kill_launcher(1)(scene)
        counted = json.loads(crowd.stdout.readline() or "{}")
    check(counted)


def check(counted: dict[str, int]) -> None:
    """Raises :class:`ClusterError` unless all of the first strangers were dropped, and others came after them."""
    opened, dropped = counted.get("opened", 0), counted.get("dropped", 0)
    if opened <= CONNECTIONS or dropped < CONNECTIONS:
        raise ClusterError(
            f"{opened} connections of strangers were opened and {dropped} dropped; {CONNECTIONS} stood at a time",
            hint="strangers that say nothing have to be dropped, or they keep members out",
        )
