"""The module that reads the RDMA stack: from files as the kernel writes them, and as Ansible runs it."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.rdma.library import rdma_read
from scripts import command
from scripts.cache import REPO


def config_space(*capabilities: tuple[int, int, bytes]) -> bytes:
    """A PCI configuration space with extended capabilities: number, offset, what follows the header."""
    space = bytearray(4096)
    for position, (number, offset, body) in enumerate(capabilities):
        following = capabilities[position + 1][1] if position + 1 < len(capabilities) else 0
        struct.pack_into("<I", space, offset, number | 1 << 16 | following << 20)
        space[offset + 4 : offset + 4 + len(body)] = body
    return bytes(space)


ERRORS = (0x0001, 0x100, b"")
ACS = (0x000D, 0x148, struct.pack("<HH", 0x005F, 0x001D))


def test_the_acs_control_word_is_found_behind_other_capabilities() -> None:
    assert rdma_read.acs_control(config_space(ERRORS, ACS)) == 0x001D


@pytest.mark.parametrize(
    "config",
    [b"", bytes(64), bytes(4096), config_space(ERRORS), config_space((0x0001, 0x100, b""), (0x0002, 0x100, b""))],
    ids=["nothing", "read without privileges", "no capability", "no ACS", "a ring of capabilities"],
)
def test_a_bridge_without_acs_has_no_control_word(config: bytes) -> None:
    assert rdma_read.acs_control(config) is None


def test_bridges_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "0000:15:01.0").mkdir()
    (tmp_path / "0000:15:01.0/config").write_bytes(config_space(ERRORS, ACS))

    assert rdma_read.read_acs(["0000:15:01.0", "0000:16:00.0"], tmp_path) == {"0000:15:01.0": 0x001D}


def test_a_device_outside_any_iommu_group_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0000:19:00.0/iommu_group").mkdir(parents=True)
    (tmp_path / "0000:19:00.0/iommu_group/type").write_text("DMA-FQ\n")

    assert rdma_read.read_iommu(["0000:19:00.0", "0000:2a:00.0"], tmp_path) == {"0000:19:00.0": "DMA-FQ"}


def test_a_device_is_open_to_programs_where_its_file_is_there(tmp_path: Path) -> None:
    for index, name in enumerate(["mlx5_0", "mlx5_1"]):
        (tmp_path / f"class/uverbs{index}").mkdir(parents=True)
        (tmp_path / f"class/uverbs{index}/ibdev").write_text(f"{name}\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/uverbs1").touch()

    assert rdma_read.read_verbs(tmp_path / "class", tmp_path / "dev") == ["mlx5_1"]


def test_the_symbols_of_the_kernel_tell_which_ways_to_gpu_memory_it_has(tmp_path: Path) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text(
        "0000000000000000 t __pfx_ib_umem_dmabuf_get_other\t[ib_uverbs]\n"
        "0000000000000000 T ib_umem_dmabuf_get\t[ib_uverbs]\n"
    )

    assert rdma_read.read_interfaces(symbols) == {"peer": False, "dmabuf": True}
    assert rdma_read.read_interfaces(tmp_path / "nothing") == {"peer": False, "dmabuf": False}


def test_a_registered_peermem_stands_in_the_kernel_s_table_and_among_the_users_of_the_rdma_core(tmp_path: Path) -> None:
    (tmp_path / "module/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "module/nvidia_peermem/refcnt").write_text("2\n")
    (tmp_path / "module/ib_core/holders/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "peers/nv_mem").mkdir(parents=True)
    (tmp_path / "peers/nv_mem/version").write_text("580.95.05\n")

    assert rdma_read.read_peermem(["ib_core"], tmp_path / "module", tmp_path / "peers") == {
        "loaded": True,
        "references": 2,
        "clients": ["nv_mem"],
        "linked": True,
        "needs": ["ib_core"],
    }


def test_a_peermem_that_is_loaded_alone_is_neither_in_the_table_nor_a_user(tmp_path: Path) -> None:
    """Known failure B29."""
    (tmp_path / "module/nvidia_peermem").mkdir(parents=True)

    found = rdma_read.read_peermem([], tmp_path / "module", tmp_path / "peers")

    assert (found["loaded"], found["clients"], found["linked"]) == (True, [], False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n", False),
    ],
    ids=["no driver", "open", "proprietary"],
)
def test_the_driver_says_itself_whether_it_is_open(text: str, expected: bool | None) -> None:
    assert rdma_read.open_driver(text) is expected


def test_memlock_is_soft_and_hard() -> None:
    limits = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608              unlimited   bytes\n"

    assert rdma_read.memlock(limits) == ["8388608", "unlimited"]
    assert rdma_read.memlock("") == []


def test_one_call_reads_all_on_a_machine_without_any_of_it(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "record": str(tmp_path / "record.json"),
        "modules_file": str(tmp_path / "modules.conf"),
        "service": "",
        "bridges": ["ffff:00:00.0"],
        "devices": ["ffff:01:00.0"],
        "programs": ["sh", "no-such-program"],
    }
    output = command.run(
        [
            *(Path(sys.executable).parent / "ansible", "localhost", "--connection", "local", "--one-line"),
            *("--module-path", REPO / "roles/rdma/library", "--module-name", "rdma_read"),
            *("--args", json.dumps(arguments), "--extra-vars", f"ansible_python_interpreter={sys.executable}"),
        ],
        cwd=REPO,
        env={"ANSIBLE_MODULE_UTILS": str(REPO / "roles/machine/module_utils")},
    )
    result = json.loads(output.partition("=>")[2])

    assert (result["changed"], result["unwritable"]) == (False, [])
    assert (result["record"], result["modules_text"], result["memlock"]) == ({}, "", [])
    assert (result["acs"], result["iommu"], result["missing_programs"]) == ({}, {}, ["no-such-program"])
