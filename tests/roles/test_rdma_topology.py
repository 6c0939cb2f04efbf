"""Which RDMA port sits by which GPU, on PCI trees as real machines have them; and which GID is taken."""

from __future__ import annotations

from typing import Any

import pytest

from roles.rdma.filter_plugins import rdma_topology as topology


def device(address: str, *path: str, node: int | None = 0, name: str = "") -> dict[str, Any]:
    """A GPU, or an RDMA device where it has a name."""
    found: dict[str, Any] = {"address": address, "path": list(path), "numa_node": node}
    return found | {"name": name, "netdevs": [], "ports": [port()]} if name else found


def port(layer: str = "InfiniBand", gids: list[dict[str, Any]] | None = None, **told: Any) -> dict[str, Any]:
    described = {"port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    return described | {"layer": layer, "gids": gids or []} | told


def gid(index: int, text: str, kind: str) -> dict[str, Any]:
    return {"index": index, "gid": text, "type": kind}


# As in a DGX: behind a root port a switch with a GPU and a card; other cards farther and farther away.
SWITCH = ("0000:15:01.0", "0000:16:00.0")
GPU = device("0000:18:00.0", *SWITCH, "0000:17:00.0")
SAME_SWITCH = device("0000:19:00.0", *SWITCH, "0000:17:01.0", name="mlx5_0")
CASCADED = device("0000:1c:00.0", *SWITCH, "0000:17:02.0", "0000:1a:00.0", "0000:1b:00.0", name="mlx5_1")
SAME_HOST_BRIDGE = device("0000:20:00.0", "0000:15:02.0", name="mlx5_2")
SAME_NODE = device("0000:2a:00.0", "0000:29:01.0", name="mlx5_3")
OTHER_NODE = device("0000:9a:00.0", "0000:99:01.0", node=1, name="mlx5_4")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SAME_SWITCH, "PIX"),
        (CASCADED, "PXB"),
        (SAME_HOST_BRIDGE, "PHB"),
        (SAME_NODE, "NODE"),
        (OTHER_NODE, "SYS"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["name"],
)
def test_a_way_has_the_class_that_nvidia_smi_gives_it_in_both_directions(other: dict[str, Any], expected: str) -> None:
    assert topology.distance(GPU, other) == topology.distance(other, GPU) == expected


def test_two_functions_of_one_card_are_as_near_as_can_be() -> None:
    other = device("0000:19:00.1", *SWITCH, "0000:17:01.0")

    assert topology.distance(SAME_SWITCH, other) == "PIX"


def test_devices_of_a_virtual_machine_hang_on_its_one_host_bridge() -> None:
    assert topology.distance(device("0000:00:05.0", node=None), device("0000:00:06.0", node=None)) == "PHB"


def test_bus_numbers_are_compared_together_with_their_domain_as_on_grace() -> None:
    gpu = device("0009:01:00.0", "0009:00:00.0", node=None)

    assert topology.distance(gpu, device("0002:01:00.0", "0002:00:00.0", node=None)) == "NODE"


def test_a_node_that_the_kernel_does_not_know_counts_as_the_same() -> None:
    assert topology.distance(GPU, device("0000:2a:00.0", "0000:29:01.0", node=None)) == "NODE"


def test_each_gpu_of_a_machine_with_rails_has_the_card_of_its_own_switch() -> None:
    gpus, cards = [], []
    for rail in range(8):
        root, bus = f"0000:{rail}0:01.0", f"{rail}"
        node = rail // 4
        gpus.append(device(f"0000:{bus}3:00.0", root, f"0000:{bus}1:00.0", f"0000:{bus}2:00.0", node=node))
        card = (root, f"0000:{bus}1:00.0", f"0000:{bus}2:01.0")
        cards.append(device(f"0000:{bus}4:00.0", *card, node=node, name=f"mlx5_{rail}"))

    ports = topology.hcas(cards, gpus, [], "ipv4")

    assert [(entry["name"], entry["gpus"], entry["class"]) for entry in ports] == [
        (f"mlx5_{rail}", [f"0000:{rail}3:00.0"], "PIX") for rail in range(8)
    ]


def test_a_card_for_storage_takes_no_gpu_from_those_of_training() -> None:
    near = topology.hcas([SAME_SWITCH, OTHER_NODE], [GPU], ["mlx5_4"], "ipv4")

    assert [(entry["name"], entry["training"], entry["gpus"], entry["class"]) for entry in near] == [
        ("mlx5_0", False, [], "PIX"),
        ("mlx5_4", True, ["0000:18:00.0"], "SYS"),
    ]


def test_two_cards_at_the_same_distance_share_a_gpu() -> None:
    twin = device("0000:19:00.1", *SWITCH, "0000:17:01.0", name="mlx5_9")

    (near,) = topology.near_hcas([SAME_SWITCH, twin, OTHER_NODE], [GPU])

    assert near == {"gpu": "0000:18:00.0", "hcas": ["mlx5_0", "mlx5_9"], "class": "PIX"}


def test_a_gpu_without_any_card_and_a_card_without_any_gpu_are_listed_as_such() -> None:
    (entry,) = topology.hcas([SAME_SWITCH], [], [], "ipv4")

    assert topology.near_hcas([], [GPU]) == [{"gpu": "0000:18:00.0", "hcas": [], "class": ""}]
    assert (entry["gpus"], entry["class"]) == ([], "")


def test_an_rdma_device_of_software_has_no_place_on_the_bus_and_no_gpu() -> None:
    software = device("", name="rxe0") | {"address": None}

    (entry,) = topology.hcas([software], [GPU], [], "ipv4")

    assert (entry["gpus"], entry["class"]) == ([], "")


def test_each_port_of_a_device_has_an_entry() -> None:
    two = SAME_SWITCH | {"ports": [port(), port(port=2, state="DOWN")]}

    assert [(entry["port"], entry["state"]) for entry in topology.hcas([two], [], [], "ipv4")] == [
        (1, "ACTIVE"),
        (2, "DOWN"),
    ]


# As a ConnectX shows them: each address as RoCE v1 and as v2.
GIDS = [
    gid(0, "fe80:0000:0000:0000:a288:c2ff:fe3b:506a", "IB/RoCE v1"),
    gid(1, "fe80:0000:0000:0000:a288:c2ff:fe3b:506a", "RoCE v2"),
    gid(2, "0000:0000:0000:0000:0000:ffff:0ac8:010a", "IB/RoCE v1"),
    gid(3, "0000:0000:0000:0000:0000:ffff:0ac8:010a", "RoCE v2"),
    gid(4, "2001:0db8:0000:0002:a288:c2ff:fe3b:506a", "IB/RoCE v1"),
    gid(5, "2001:0db8:0000:0002:a288:c2ff:fe3b:506a", "RoCE v2"),
]


@pytest.mark.parametrize(
    ("family", "gids", "expected"),
    [("ipv4", GIDS, 3), ("ipv6", GIDS, 5), ("ipv4", GIDS[:2], None), ("ipv6", GIDS[:4], None), ("ipv4", [], None)],
    ids=["IPv4", "IPv6", "no IPv4 address", "link-local only", "no address"],
)
def test_roce_takes_the_first_gid_of_version_2_from_the_asked_family(
    family: str, gids: list[dict[str, Any]], expected: int | None
) -> None:
    assert topology.gid_index(port("Ethernet", gids), family) == expected


def test_infiniband_takes_its_first_gid() -> None:
    assert topology.gid_index(port(gids=[gid(0, "fe80:0000:0000:0000:a288:c203:003b:506a", "IB/RoCE v1")]), "ipv4") == 0


@pytest.mark.parametrize(("rate", "expected"), [("400 Gb/sec (4X NDR)", 400), ("2.5 Gb/sec (1X SDR)", 2.5), ("", 0)])
def test_a_rate_is_read_in_gigabits(rate: str, expected: float) -> None:
    assert topology.gbit(rate) == expected


def test_bridges_are_listed_once() -> None:
    assert topology.bridges([GPU, SAME_SWITCH]) == [*SWITCH, "0000:17:00.0", "0000:17:01.0"]
