"""What drills leave behind is found, whatever kind of thing it is."""

from __future__ import annotations

from typing import Any

from scripts.drill import leftovers


def named(name: str, **rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {}, **rest}


def test_namespaces_on_their_way_out_volumes_and_closed_nodes_are_found() -> None:
    namespaces = [
        named("drill-worker-killed-ab12", status={"phase": "Terminating"}),
        named("default", status={"phase": "Active"}),
    ]
    volumes = [
        named("pvc-1", spec={"claimRef": {"namespace": "drill-twin-ab12"}}),
        named("drill-volume-full-ab12"),
        named("pvc-2", spec={"claimRef": {"namespace": "default"}}),
    ]
    nodes = [named("worker-1", spec={"unschedulable": True}), named("worker-2")]
    assert list(leftovers.of_the_api(namespaces, volumes, nodes)) == [
        "namespace drill-worker-killed-ab12 (Terminating)",
        "persistent volume pvc-1",
        "persistent volume drill-volume-full-ab12",
        "node worker-1 is closed to new pods",
    ]
    assert list(leftovers.of_the_api(namespaces[1:], volumes[2:], nodes[1:])) == []
