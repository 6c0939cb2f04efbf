"""How network cards reach GPU memory: peermem, DMA-BUF, and what is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.rdma_node import FOUND, findings, hca, node, on

PROPRIETARY = {"open_driver": False, "interfaces": {"peer": True, "dmabuf": True}}


REGISTERED = {"loaded": True, "clients": ["nv_mem"], "linked": True}


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
