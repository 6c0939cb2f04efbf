"""Which CPUs and how much memory the system keeps, on machines of all shapes. Known failures B 2 and B 24."""

from __future__ import annotations

from typing import Any

import pytest

from roles.cpu_manager.filter_plugins import cpu_manager_plan as plans
from scripts.cache import REPO
from tests.roles.templating import load

SAMPLES = sorted((REPO / "tests/roles/samples").glob("*.yml"))
EVERY_SAMPLE = pytest.mark.parametrize("facts", [load(path) for path in SAMPLES], ids=[path.stem for path in SAMPLES])


def machine(*numa: int, threads: int = 1, gpus: tuple[int | None, ...] = ()) -> dict[str, Any]:
    """A machine with so many cores on each NUMA node; all first threads are counted before the second ones."""
    homes = [node for node, cores in enumerate(numa) for _ in range(cores)]
    cpus = [
        {"cpu": thread * len(homes) + core, "core": core, "socket": node, "node": node}
        for thread in range(threads)
        for core, node in enumerate(homes)
    ]
    return {
        "cpus": {"online": [cpu["cpu"] for cpu in cpus], "offline": [], "cpus": cpus},
        "gpus": [{"address": f"0000:{index:02x}:00.0", "numa_node": node} for index, node in enumerate(gpus)],
    }


def reserved(facts: dict[str, Any], per_numa: int = 1, explicit: str = "") -> str:
    return str(plans.plan(facts, per_numa, explicit)["reserved"])


def problems(facts: dict[str, Any], per_numa: int = 1, explicit: str = "") -> list[str]:
    found: list[str] = plans.plan(facts, per_numa, explicit)["problems"]
    return found


def test_the_first_core_of_each_numa_node_is_kept_with_all_its_threads() -> None:
    assert reserved(machine(4, 4, threads=2)) == "0,4,8,12"
    assert reserved(machine(4, 4, threads=2), per_numa=2) == "0-1,4-5,8-9,12-13"


def test_without_threads_whole_cores_are_single_cpus() -> None:
    assert reserved(machine(4, 4)) == "0,4"


def test_siblings_are_told_by_their_core_not_by_their_number() -> None:
    facts = machine(2)
    for cpu, core in zip(facts["cpus"]["cpus"], (0, 0), strict=True):
        cpu["core"] = core

    assert problems(facts) != []
    assert reserved(facts) == "0-1"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_machine_with_one_core_cannot_have_it_reserved(threads: int) -> None:
    assert "leave pods no whole core of the 1 that the node has" in problems(machine(1, threads=threads))[0]


def test_two_cpus_leave_one() -> None:
    assert (reserved(machine(2)), problems(machine(2))) == ("0", [])


def test_nothing_reserved_is_refused_because_the_kubelet_would_not_start() -> None:
    assert "does not start without reserved CPUs" in problems(machine(8), per_numa=0)[0]


def test_each_gpu_keeps_a_core_of_its_numa_node() -> None:
    facts = machine(4, 4, gpus=(0, 0, 1, 1))

    assert problems(facts, per_numa=2) == []
    assert [text[:23] for text in problems(facts, per_numa=3)] == ["NUMA node 0 has 2 GPUs,", "NUMA node 1 has 2 GPUs,"]


def test_a_gpu_whose_place_is_not_known_takes_no_core_from_anywhere() -> None:
    assert problems(machine(2, gpus=(None,))) == []


def test_an_explicit_list_is_taken_as_it_is() -> None:
    assert reserved(machine(8, 8, threads=2), explicit=" 0-1, 16-17") == "0-1,16-17"


@pytest.mark.parametrize(
    ("explicit", "words"),
    [
        ("0-99", "names the CPUs 8-99, which are not online here (0-7 are)"),
        ("0-7", "leave pods no whole core"),
        ("a", "'a' is neither a number nor a range"),
        ("3-1", "'3-1' is neither a number nor a range"),
        ("0,,1", "'' is neither a number nor a range"),
    ],
)
def test_an_explicit_list_that_cannot_be_followed_is_refused(explicit: str, words: str) -> None:
    assert words in problems(machine(8), explicit=explicit)[0]


def test_half_a_core_is_allowed_and_noted() -> None:
    found = plans.plan(machine(4, threads=2), 1, "0")

    assert found["problems"] == []
    assert "only some threads of the cores 0,4" in found["notes"][0]


def test_cpus_that_are_offline_are_in_no_plan() -> None:
    facts = machine(4)
    facts["cpus"]["offline"] = [2]
    facts["cpus"]["online"].remove(2)
    facts["cpus"]["cpus"] = [cpu for cpu in facts["cpus"]["cpus"] if cpu["cpu"] != 2]

    assert plans.plan(facts, 1)["numa"][0]["left"] == "1,3"


@EVERY_SAMPLE
def test_every_sample_keeps_one_core_of_each_numa_node_that_has_any(facts: dict[str, Any]) -> None:
    found = plans.plan(facts, 1)
    kept = set(plans.parse(found["reserved"]))
    cores = {(cpu["node"], cpu["core"]) for cpu in facts["cpus"]["cpus"] if cpu["cpu"] in kept}

    assert found["problems"] == []
    assert sorted(node for node, _ in cores) == [node["node"] for node in facts["numa"] if node["cpus"]]
    assert all(cpu["cpu"] in kept for cpu in facts["cpus"]["cpus"] if (cpu["node"], cpu["core"]) in cores)


@EVERY_SAMPLE
def test_every_sample_s_gpus_are_in_its_plan(facts: dict[str, Any]) -> None:
    planned = [address for row in plans.plan(facts, 1)["numa"] for address in row["gpus"]]

    assert sorted(planned) == sorted(gpu["address"] for gpu in facts["gpus"] if gpu["numa_node"] is not None)


@pytest.mark.parametrize("cpus", [[], [0], [0, 1, 2, 5, 7, 8]])
def test_lists_are_read_as_they_are_written(cpus: list[int]) -> None:
    assert (plans.parse(plans.show(cpus)) if cpus else []) == cpus


def numa(nodes: int, with_cpus: int) -> list[dict[str, Any]]:
    return [{"node": node, "cpus": [node] if node < with_cpus else []} for node in range(nodes)]


def test_eight_numa_nodes_need_no_option() -> None:
    assert plans.topology(numa(8, 8), "best-effort", []) == {"policy": "best-effort", "options": {}, "note": ""}


def test_more_numa_nodes_are_told_to_the_kubelet_as_a_number() -> None:
    options = plans.topology(numa(12, 12), "best-effort", ["prefer-closest-numa-nodes"])["options"]

    assert options == {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "12"}


def test_the_34_numa_nodes_of_a_grace_machine_leave_the_topology_manager_off_with_a_note() -> None:
    found = plans.topology(numa(34, 2), "best-effort", [])

    assert (found["policy"], found["options"]) == ("none", {})
    assert "34 NUMA nodes" in found["note"]


@pytest.mark.parametrize(("reserved", "nodes"), [(2**31, 1), (2**31, 2), (2**31 + 1, 2), (1000, 3)])
def test_memory_by_numa_node_is_exactly_what_the_kubelet_reserves(reserved: int, nodes: int) -> None:
    found = plans.memory(numa(nodes + 1, nodes), reserved)
    by_node = [int(entry["limits"]["memory"]) for entry in found["reservedMemory"]]

    assert (len(by_node), sum(by_node)) == (nodes, reserved)
    # Written to a drop-in, a part of this map would unset the limits for disks.
    assert "evictionHard" not in found


@pytest.mark.parametrize(
    ("config", "given", "mib"),
    [
        ({}, 0, 100),
        # A part of the map unsets the rest: so it is on K3s.
        ({"evictionHard": {"nodefs.available": "5%"}}, 0, 0),
        ({"evictionHard": {"memory.available": "500Mi"}, "systemReserved": {"memory": "1Gi"}}, 0, 1524),
        ({"kubeReserved": {"cpu": "1"}, "systemReserved": {"memory": "1048576"}}, 0, 1),
        ({"kubeReserved": {"memory": "1Gi"}}, 300, 300),
        ({"evictionHard": {"memory.available": "5%"}}, 0, 0),
        ({"evictionHard": {"memory.available": "5%"}}, 700, 700),
    ],
)
def test_reserved_memory_is_the_sum_that_the_kubelet_itself_takes(config: dict[str, Any], given: int, mib: int) -> None:
    assert plans.reserved_bytes(config, given, 100) == mib * 2**20
