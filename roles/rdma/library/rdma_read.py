#!/usr/bin/python
"""Ansible module of the role rdma: what the role decides on beyond machine_facts, read from the node in one call."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine.files import text as text_of
from ansible.module_utils.machine.records import read_record, read_text
from ansible.module_utils.machine.writing import unwritable

DOCUMENTATION = r"""
module: rdma_read
short_description: Read the state of the RDMA stack
description:
  - Reads device files, kernel modules, symbols, PCI settings, the memlock limit of the container runtime and the files
    of the role rdma. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  modules_file:
    description: Path of the role's file for systemd-modules-load.
    type: path
    required: true
  service:
    description: systemd service that starts containers, without C(.service); empty where there is none.
    type: str
    required: true
  bridges:
    description: PCI addresses of the bridges whose access control (ACS) matters.
    type: list
    elements: str
    required: true
  devices:
    description: PCI addresses of the devices whose IOMMU domain matters.
    type: list
    elements: str
    required: true
  programs:
    description: Names of programs to look for.
    type: list
    elements: str
    required: true
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
modules_text:
  description: Text of O(modules_file), empty where it is not there.
  returned: always
  type: str
verbs:
  description: RDMA devices that have a device file for programs (C(/dev/infiniband/uverbsN)).
  returned: always
  type: list
rdma_cm:
  description: Whether C(/dev/infiniband/rdma_cm) is there.
  returned: always
  type: bool
peermem:
  description: >-
    The module nvidia-peermem: C(loaded), C(references) (how many use it), C(clients) (names in the kernel's table of
    peer memory clients), C(linked) (whether the RDMA core counts it as a user), C(needs) (modules that its file needs;
    null without a file).
  returned: always
  type: dict
interfaces:
  description: Whether the kernel has C(peer) (ib_register_peer_memory_client) and C(dmabuf) (ib_umem_dmabuf_get).
  returned: always
  type: dict
open_driver:
  description: Whether the loaded NVIDIA driver is the open one; null where none is loaded.
  returned: always
  type: bool
ofed:
  description: Whether kernel sources of OFED or DOCA are there.
  returned: always
  type: bool
memlock:
  description: Soft and hard memlock limit of O(service) as the kernel writes them; empty where it does not run.
  returned: always
  type: list
acs:
  description: ACS control word by bridge, without bridges that have none.
  returned: always
  type: dict
iommu:
  description: Type of the IOMMU domain by device, without devices that are in none.
  returned: always
  type: dict
missing_programs:
  description: Those of O(programs) that are not there.
  returned: always
  type: list
unwritable:
  description: What of the paths of O(record) and O(modules_file) cannot be written to, as on a read-only mount.
  returned: always
  type: list
"""

PCI = Path("/sys/bus/pci/devices")
VERBS, DEVICE_FILES = Path("/sys/class/infiniband_verbs"), Path("/dev/infiniband")
MODULES, PEERS = Path("/sys/module"), Path("/sys/kernel/mm/memory_peers")
CORE_MODULES = ["ib_core", "ib_uverbs"]
"""Which of them exports the interface for peers depends on the release of the RDMA stack."""

SYMBOLS = {"peer": "ib_register_peer_memory_client", "dmabuf": "ib_umem_dmabuf_get"}

EXTENDED, ACS = 0x100, 0x000D
"""Where a PCI device's extended capabilities begin, and the number of access control services (linux/pci_regs.h)."""


def read_verbs(classes: Path = VERBS, files: Path = DEVICE_FILES) -> list[str]:
    """The RDMA devices that programs can open."""
    found = [text_of(folder / "ibdev") for folder in classes.glob("uverbs*") if (files / folder.name).exists()]
    return sorted(name for name in found if name)


def acs_control(config: bytes) -> int | None:
    """The control word of a PCI device's access control services, from its configuration space; None without any."""
    offset = EXTENDED
    seen = set()
    while offset >= EXTENDED and offset + 8 <= len(config) and offset not in seen:
        seen.add(offset)
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == ACS:
            (control,) = struct.unpack_from("<H", config, offset + 6)
            return int(control)
        offset = header >> 20
    return None


def read_acs(bridges: Sequence[str], devices: Path = PCI) -> dict[str, int]:
    """The ACS control words of the ``bridges`` that have one."""
    found = {}
    for address in bridges:
        try:
            control = acs_control((devices / address / "config").read_bytes())
        except OSError:
            continue
        if control is not None:
            found[address] = control
    return found


def read_iommu(addresses: Sequence[str], devices: Path = PCI) -> dict[str, str]:
    """The types of the IOMMU domains of the devices that are in one: DMA, DMA-FQ or identity."""
    types = {address: text_of(devices / address / "iommu_group/type") for address in addresses}
    return {address: kind for address, kind in types.items() if kind}


def read_interfaces(kallsyms: Path = Path("/proc/kallsyms")) -> dict[str, bool]:
    """Which ways to GPU memory the RDMA core of the running kernel has."""
    wanted = {symbol: name for name, symbol in SYMBOLS.items()}
    found = dict.fromkeys(SYMBOLS, False)
    try:
        with kallsyms.open(encoding="utf-8") as lines:
            for line in lines:
                name = wanted.get(line.split(maxsplit=3)[2])
                if name:
                    found[name] = True
    except OSError:
        pass
    return found


def read_peermem(needs: list[str] | None, modules: Path = MODULES, peers: Path = PEERS) -> dict[str, Any]:
    """What the kernel says of nvidia-peermem."""
    return {
        "loaded": (modules / "nvidia_peermem").exists(),
        "references": int(text_of(modules / "nvidia_peermem/refcnt") or 0),
        "clients": sorted(folder.name for folder in peers.glob("nv*") if (folder / "version").exists()),
        "linked": any((modules / core / "holders/nvidia_peermem").exists() for core in CORE_MODULES),
        "needs": needs,
    }


def open_driver(text: str) -> bool | None:
    """Whether /proc/driver/nvidia/version names the open kernel module; None for the empty text."""
    return "Open Kernel Module" in text if text else None


def memlock(limits: str) -> list[str]:
    """Soft and hard limit in the text of a /proc/PID/limits."""
    title = "Max locked memory"
    lines = [line for line in limits.splitlines() if line.startswith(title)]
    return lines[0][len(title) :].split()[:2] if lines else []


def module_needs(module: AnsibleModule) -> list[str] | None:
    """The modules that the file of nvidia-peermem needs, None where the kernel has no such file."""
    modinfo = module.get_bin_path("modinfo")
    if modinfo is None:
        return None
    status, needs, _ = module.run_command([modinfo, "--field", "depends", "nvidia-peermem"])
    return [name for name in needs.strip().split(",") if name] if status == 0 else None


def read_memlock(module: AnsibleModule, service: str) -> list[str]:
    """The limits of the service's main process, empty where it does not run."""
    if not service:
        return []
    show = ["systemctl", "show", "--property=MainPID", "--value", "--", f"{service}.service"]
    _, pid, _ = module.run_command(show, check_rc=True)
    return memlock(text_of(Path("/proc", pid.strip(), "limits")))


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    params = module.params
    return {
        "record": read_record(Path(params["record"]), installed=list, loaded=list),
        "modules_text": read_text(Path(params["modules_file"])) or "",
        "verbs": read_verbs(),
        "rdma_cm": (DEVICE_FILES / "rdma_cm").exists(),
        "peermem": read_peermem(module_needs(module)),
        "interfaces": read_interfaces(),
        "open_driver": open_driver(text_of(Path("/proc/driver/nvidia/version"))),
        "ofed": Path("/usr/src/ofa_kernel").exists(),
        "memlock": read_memlock(module, params["service"]),
        "acs": read_acs(params["bridges"]),
        "iommu": read_iommu(params["devices"]),
        "missing_programs": [name for name in params["programs"] if module.get_bin_path(name) is None],
        "unwritable": unwritable([params["record"], params["modules_file"]]),
    }


def main() -> None:
    """Ansible's entry point."""
    names = {"type": "list", "elements": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "modules_file": {"type": "path", "required": True},
            "service": {"type": "str", "required": True},
            "bridges": names,
            "devices": names,
            "programs": names,
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
