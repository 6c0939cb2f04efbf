"""What role rdma makes of a node, by Ansible's own templating: refusals, plan and report."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from tests.roles.templating import evaluate

ROLE = REPO / "roles/rdma"
SWITCH = ["0000:15:01.0", "0000:16:00.0"]
MAPPED = {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0ac8:010a", "type": "RoCE v2"}
GPU = {"address": "0000:18:00.0", "path": [*SWITCH, "0000:17:00.0"], "numa_node": 0}
FOUND = {"rdma-ndd", "ibv_devinfo"}


def port(layer: str = "InfiniBand", **told: Any) -> dict[str, Any]:
    described = {"port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    return described | {"layer": layer, "gids": [MAPPED] if layer == "Ethernet" else []} | told


def hca(name: str = "mlx5_0", **told: Any) -> dict[str, Any]:
    return {
        "name": name,
        "address": "0000:19:00.0",
        "path": [*SWITCH, "0000:17:01.0"],
        "numa_node": 0,
        "netdevs": ["eth1"],
        "ports": [port(**told)],
    }


def facts(*hcas: dict[str, Any], gpus: tuple[dict[str, Any], ...] = (GPU,), **told: Any) -> dict[str, Any]:
    """machine_facts as role machine registers them, as far as the role reads them."""
    described: dict[str, Any] = {
        "rdma": list(hcas),
        "gpus": list(gpus),
        "nics": [],
        "kernel": {"release": "6.8.0-90-generic"},
        "runtime": {"service": "containerd"},
        "virtual_machine": "",
    }
    return described | told


def node(*hcas: dict[str, Any], read: dict[str, Any] | None = None, **told: Any) -> dict[str, Any]:
    """A node on which everything is well: open driver, DMA-BUF, memlock without end; ``read`` and ``told`` on top."""
    peermem = {"loaded": False, "references": 0, "clients": [], "linked": False, "needs": ["ib_core", "nvidia"]}
    stack: dict[str, Any] = {
        "record": {},
        "modules_text": "",
        "verbs": [device["name"] for device in hcas],
        "rdma_cm": True,
        "peermem": peermem,
        "interfaces": {"peer": False, "dmabuf": True},
        "open_driver": True,
        "ofed": False,
        "memlock": ["unlimited", "unlimited"],
        "acs": {},
        "iommu": {},
        "missing_programs": [],
        "unwritable": [],
    }
    read = dict(read or {})
    stack["peermem"] = peermem | read.pop("peermem", {})
    described: dict[str, Any] = {
        "machine_facts": facts(*hcas, **told),
        "__rdma_node": stack | read,
        "ansible_managed": "Ansible",
    }
    described["ansible_search_path"] = [str(ROLE)]
    if "modules_text" not in read:
        described["__rdma_node"]["modules_text"] = evaluate(ROLE, "__rdma_modules_text", described)
    return described


def nic(name: str, driver: str | None, **told: Any) -> dict[str, Any]:
    return {"name": name, "driver": driver, "rdma": [], "master": ""} | told


def on(expression: str, described: dict[str, Any], **arguments: Any) -> Any:
    return evaluate(ROLE, expression, described | {f"rdma_{name}": value for name, value in arguments.items()})


def findings(described: dict[str, Any], severity: str, **arguments: Any) -> list[str]:
    found = on("__rdma_findings", described, **arguments)
    return [finding["what"] for finding in found if finding["severity"] == severity]


PROPRIETARY = {"open_driver": False, "interfaces": {"peer": True, "dmabuf": True}}
REGISTERED = {"loaded": True, "clients": ["nv_mem"], "linked": True}


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


@pytest.mark.parametrize(
    ("read", "told", "path", "why"),
    [
        ({}, {}, "dmabuf", "open kernel modules"),
        (PROPRIETARY, {}, "peermem", "the proprietary one"),
        ({}, {"kernel": {"release": "5.4.0-200-generic"}}, "peermem", "kernel 5.4.0-200-generic is older than 5.12"),
        ({"interfaces": {"peer": True, "dmabuf": False}}, {}, "peermem", "takes no DMA-BUF"),
        ({}, {"gpus": ()}, "none", "no NVIDIA GPU"),
        ({"open_driver": None}, {}, "none", "no NVIDIA driver is loaded"),
    ],
    ids=["open", "proprietary", "old kernel", "core without DMA-BUF", "no GPU", "no driver"],
)
def test_the_way_to_gpu_memory_follows_from_driver_kernel_and_stack(
    read: dict[str, Any], told: dict[str, Any], path: str, why: str
) -> None:
    way = on("__rdma_way", node(hca(), read=read, **told))

    assert (way["path"], why in way["why"]) == (path, True)


def test_no_gpudirect_is_accepted_where_that_is_asked_for() -> None:
    assert findings(node(hca(), read=PROPRIETARY | {"peermem": {"needs": []}}), "error", gpudirect="none") == []


def test_peermem_is_loaded_after_the_stack_and_at_boot() -> None:
    """Known failure B29."""
    described = node(hca(), read=PROPRIETARY | {"modules_text": ""})
    text = on("__rdma_modules_text", described).splitlines()

    assert on("__rdma_unloaded_modules", described) == ["nvidia-peermem"]
    assert text[-3:] == ["ib_uverbs", "rdma_ucm", "nvidia-peermem"]
    assert on("__rdma_as_asked", described) is False
    assert on("__rdma_new_record", described) == {"loaded": ["nvidia-peermem"], "installed": []}


def test_a_registered_peermem_is_ok() -> None:
    assert on("__rdma_status", node(hca(), read=PROPRIETARY | {"peermem": REGISTERED})) == "ok"


def test_a_peermem_that_is_loaded_but_not_registered_fails_with_its_order_named() -> None:
    """Known failure B29."""
    described = node(hca(), read=PROPRIETARY | {"peermem": {"loaded": True}, "ofed": True})
    (finding,) = [finding for finding in on("__rdma_findings", described) if finding["severity"] == "error"]

    assert "loaded, but not registered" in finding["what"]
    assert "the RDMA stack was not there when they were built" in finding["fix"]


def test_a_linked_peermem_that_the_kernel_s_table_does_not_name_is_a_warning() -> None:
    described = node(hca(), read=PROPRIETARY | {"peermem": {"loaded": True, "linked": True}})

    assert findings(described, "error") == []
    assert "whose table of peers does not name it" in findings(described, "warning")[0]


@pytest.mark.parametrize(
    ("needs", "words"),
    [([], "without the RDMA stack's interface"), (None, "brings no module")],
    ids=["shell", "no file"],
)
def test_a_peermem_that_cannot_be_loaded_is_neither_tried_nor_put_in_the_boot(
    needs: list[str] | None, words: str
) -> None:
    """A shell of a module fails systemd-modules-load.service at every boot."""
    described = node(hca(), read=PROPRIETARY | {"peermem": {"needs": needs}})

    assert on("__rdma_wanted_modules", described) == ["ib_uverbs", "rdma_ucm"]
    assert words in findings(described, "error")[0]


def test_a_stack_without_the_interface_for_peers_is_named_before_the_module_fails_in_it() -> None:
    described = node(hca(), read={"open_driver": False, "interfaces": {"peer": False, "dmabuf": True}})

    assert on("__rdma_wanted_modules", described) == ["ib_uverbs", "rdma_ucm"]
    assert "ib_register_peer_memory_client" in findings(described, "error")[0]


def test_dma_buf_that_is_asked_for_and_missing_says_what_is_missing() -> None:
    described = node(hca(), read=PROPRIETARY | {"ofed": True})
    found = on("__rdma_findings", described, gpudirect="dmabuf")
    (finding,) = [finding for finding in found if finding["what"].startswith("RDMA devices cannot reach")]

    assert "the proprietary one" in finding["what"]
    assert finding["fix"].startswith("Open kernel modules on kernel 5.12 or newer")


def test_a_managed_stack_without_peermem_leaves_nothing_to_load_and_no_file() -> None:
    described = node(hca(), read={"modules_text": "", "missing_programs": list(FOUND)})

    assert on("[__rdma_modules_text, __rdma_as_asked]", described, stack="managed") == ["", True]


def test_acs_and_iommu_are_warned_of_on_machines_only() -> None:
    read = {"acs": {"0000:15:01.0": 0x1D, "0000:16:00.0": 0x11}, "iommu": {"0000:19:00.0": "DMA-FQ"}}
    acs, iommu = findings(node(hca(), read=read), "warning")

    assert acs == "ACS sends traffic between GPUs and RDMA devices through the CPU at 0000:15:01.0."
    assert iommu == "The IOMMU translates each access of 0000:19:00.0."
    assert findings(node(hca(), read=read, virtual_machine="kvm"), "warning") == []


def test_an_iommu_that_passes_addresses_through_is_nothing_to_speak_of() -> None:
    assert findings(node(hca(), read={"iommu": {"0000:19:00.0": "identity"}}), "warning") == []


def test_gpus_without_a_card_on_their_switch_are_named_up_to_four() -> None:
    gpus = tuple({"address": f"0000:{bus}1:00.0", "path": [f"0000:{bus}0:01.0"], "numa_node": 1} for bus in range(2, 8))

    (what,) = findings(node(hca(), gpus=gpus), "info")

    assert "0000:21:00.0, 0000:31:00.0, 0000:41:00.0, 0000:51:00.0 and 2 more" in what


def test_what_is_asked_does_not_depend_on_the_node() -> None:
    assert on("__rdma_asked", node(hca())) == on("__rdma_asked", node())
