"""What role rdma makes of a node, by Ansible's own templating: refusals, plan and report."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.rdma_node import FOUND, MAPPED, findings, hca, node, on


def nic(name: str, driver: str | None, **told: Any) -> dict[str, Any]:
    return {"name": name, "driver": driver, "rdma": [], "master": ""} | told


def test_a_node_on_which_everything_is_well_is_ok_without_a_word() -> None:
    described = node(hca())

    assert on("__rdma_as_asked", described) is True
    assert on("[__rdma_status, __rdma_why, __rdma_findings]", described) == ["ok", "", []]


def test_a_node_without_rdma_devices_is_skipped_and_nothing_is_asked_of_it() -> None:
    described = node(read={"memlock": [], "rdma_cm": False, "missing_programs": list(FOUND)})

    assert on("__rdma_as_asked", described) is True
    assert on("[__rdma_status, __rdma_why]", described) == ["skipped", "The node has no RDMA device."]


def test_a_node_without_rdma_devices_fails_where_they_are_required() -> None:
    described = node()

    assert on("__rdma_status", described, required="true") == "failed"
    assert findings(described, "error", required=True) == [
        "The node has no RDMA devices for training, and rdma_required is true."
    ]


def test_a_node_with_fewer_rdma_devices_for_training_than_it_should_have_fails() -> None:
    described = node(hca("mlx5_0"), hca("mlx5_1"))

    assert on("__rdma_status", described, least_devices="2") == "ok"
    assert findings(described, "error", least_devices="2", hcas=["mlx5_1"]) == [
        "The node has 1 RDMA devices for training, and rdma_least_devices is 2."
    ]
    assert "rdma_least_devices is -1" in on("__rdma_refusals", described, least_devices=-1)[0]


def test_a_card_without_its_rdma_module_is_named_with_the_module() -> None:
    nics = [nic("eth2", "mlx5_core"), nic("lo", None)]

    assert findings(node(nics=nics), "warning") == [
        "eth2 (mlx5_core, needs mlx5_ib) could do RDMA and has no RDMA device."
    ]


def test_a_card_that_is_mostly_there_for_ethernet_is_named_only_where_rdma_is_missed() -> None:
    described = node(nics=[nic("eth0", "ice")])

    assert on("__rdma_findings", described) == []
    assert "eth0 (ice, needs irdma)" in findings(described, "warning", required="true")[0]


def test_an_interface_that_shares_the_device_of_its_bond_is_not_idle() -> None:
    bond = [nic("eth2", "mlx5_core", rdma=["mlx5_bond_0"], master="bond0"), nic("eth3", "mlx5_core", master="bond0")]

    assert on("__rdma_idle_nics", node(hca("mlx5_bond_0"), nics=bond)) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hcas": ["mlx5_7"]}, "rdma_hcas names mlx5_7, which this node does not have. It has mlx5_0."),
        ({"hcas": ["mlx5_0", "mlx5_0"]}, "rdma_hcas names a device twice"),
        ({"least_memlock": "8M"}, "rdma_least_memlock is 8M. Give bytes as a whole number, or infinity."),
    ],
    ids=["unknown device", "twice", "unit"],
)
def test_an_argument_that_cannot_hold_is_refused_in_one_sentence(arguments: dict[str, Any], words: str) -> None:
    (sentence,) = on("__rdma_refusals", node(hca()), **arguments)

    assert sentence.startswith(words)


def test_names_of_devices_do_not_matter_on_a_node_without_any() -> None:
    assert on("__rdma_refusals", node(), hcas=["mlx5_0"]) == []


def test_devices_named_on_the_command_line_are_names_and_not_a_text_to_search_in() -> None:
    described = node(hca("mlx5_1"), hca("mlx5_10"), hca("mlx5_11"))

    training = on("__rdma_training", described, hcas="mlx5_10,mlx5_11")

    assert [device["name"] for device in training] == ["mlx5_10", "mlx5_11"]
    assert on("__rdma_refusals", described, hcas="mlx5_10, mlx5_11") == []
    assert "names mlx5_9, which" in on("__rdma_refusals", described, hcas="mlx5_1,mlx5_9")[0]


def test_a_read_only_file_system_is_refused_before_anything_changes_unless_nothing_is_to_change() -> None:
    (sentence,) = on("__rdma_refusals", node(hca(), read={"unwritable": ["/etc"], "modules_text": "edited"}))

    assert "/etc on this node cannot be written to" in sentence
    assert on("__rdma_refusals", node(hca(), read={"unwritable": ["/etc"]})) == []


def test_a_port_that_is_down_is_a_warning_while_another_works_and_an_error_by_name() -> None:
    down = hca("mlx5_1", state="DOWN", phys_state="Polling")
    described = node(hca(), down)
    sentence = "mlx5_1 port 1 is DOWN (Polling), not ACTIVE."

    assert findings(described, "warning") == [sentence]
    assert findings(described, "error", hcas=["mlx5_0", "mlx5_1"]) == [sentence]
    assert findings(described, "error", hcas=["mlx5_0"]) == []
    assert on("__rdma_status", described) == "ok"


def test_a_node_whose_only_port_is_down_fails() -> None:
    assert on("__rdma_status", node(hca(state="DOWN", phys_state="Disabled"))) == "failed"


def test_an_infiniband_port_that_waits_for_its_subnet_manager_is_told_so() -> None:
    (finding,) = on("__rdma_findings", node(hca(state="INIT")))

    assert "no subnet manager has configured it" in finding["fix"]


def test_a_slower_port_is_named() -> None:
    (what,) = findings(node(hca(), hca("mlx5_1", rate="100 Gb/sec (4X EDR)")), "warning")

    assert what == "mlx5_1 port 1 runs at 100 Gb/sec (4X EDR), the fastest port of the node at 400 Gb/sec."


def test_a_roce_port_without_an_address_of_the_family_is_named_with_its_interface() -> None:
    described = node(hca(layer="Ethernet"))

    assert findings(described, "error") == []
    assert findings(described, "error", gid_family="ipv6") == [
        "mlx5_0 port 1 has no RoCE v2 GID of a global IPv6 address."
    ]


def test_different_gid_indexes_cannot_be_one_variable() -> None:
    described = node(hca(layer="Ethernet"), hca("mlx5_1", layer="Ethernet", gids=[MAPPED | {"index": 5}]))

    assert findings(described, "warning") == ["The RoCE ports need different GID indexes (3, 5)."]


def test_roce_says_what_is_not_checked() -> None:
    assert findings(node(hca(layer="Ethernet")), "info") == ["PFC and ECN of the network are not checked."]


def test_device_files_that_are_missing_are_asked_of_the_kernel_and_reported() -> None:
    described = node(hca(), read={"verbs": [], "rdma_cm": False})

    assert on("__rdma_unloaded_modules", described) == ["ib_uverbs", "rdma_ucm"]
    assert on("__rdma_unloaded_modules", described, stack="managed") == []
    assert any("mlx5_0 cannot be opened by programs" in what for what in findings(described, "error"))


def test_memlock_below_what_is_asked_is_an_error_unless_container_runtime_waits_with_it() -> None:
    """Known failure B21."""
    described = node(hca(), read={"memlock": ["8388608", "8388608"]})
    waits = described | {"container_runtime_report": {"status": "waiting", "why": "containerd waits."}}

    assert findings(described, "error") == [
        "Containers may lock 8388608 bytes of memory (memlock of containerd), less than infinity."
    ]
    assert findings(described, "error", least_memlock=8388608) == []
    assert on("__rdma_status", waits) == "waiting"
    assert on("__rdma_why", waits).endswith("has restarted the service: containerd waits.")


def test_memlock_of_a_runtime_that_does_not_run_is_not_known() -> None:
    (what,) = findings(node(hca(), read={"memlock": []}), "warning")

    assert what.startswith("No container runtime runs")
