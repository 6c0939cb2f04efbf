"""What nvidia-smi says, which is more than PCI tells and only there with a working driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .programs import Answer

FIELDS = ("index", "uuid", "name", "memory.total", "pci.bus_id", "mig.mode.current", "driver_version")

PROGRAM = "nvidia-smi"

QUESTION: Mapping[str, tuple[str, ...]] = {
    "smi_gpus": (PROGRAM, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"),
}
DETAILS: Mapping[str, tuple[str, ...]] = {
    "smi_list": (PROGRAM, "--list-gpus"),
    "smi_summary": (PROGRAM,),
    "smi_topology": (PROGRAM, "topo", "--matrix"),
}
"""Asked only where :data:`QUESTION` was answered: one that hangs in the kernel stays there until the machine boots."""


def read(answers: Mapping[str, Answer]) -> tuple[dict[str, Any] | None, str]:
    """What the answers to :data:`QUESTION` and :data:`DETAILS` come to, or None and the sentence that says why."""
    gpus = answers["smi_gpus"]
    if gpus.problem:
        return None, gpus.problem
    rows = [[cell.strip() for cell in line.split(",")] for line in gpus.output.splitlines()]
    rows = [row for row in rows if len(row) == len(FIELDS)]
    mig = mig_devices(answers["smi_list"].output)
    cuda = re.search(r"CUDA[\w ]* Version\s*:\s*(\d+\.\d+)", answers["smi_summary"].output)
    return {
        "gpus": [_gpu(row, mig) for row in rows],
        "driver": rows[0][6] if rows else None,
        "cuda": cuda[1] if cuda else None,
        "topology": answers["smi_topology"].output,
    }, ""


def _gpu(row: list[str], mig: Mapping[int, list[dict[str, str]]]) -> dict[str, Any]:
    index = int(row[0])
    return {
        "index": index,
        "uuid": row[1],
        "name": row[2],
        # "[N/A]" where the GPU shares the CPUs' memory
        "memory_mib": int(row[3]) if row[3].isdecimal() else None,
        "address": pci_address(row[4]),
        "mig": row[5] == "Enabled",
        "mig_devices": mig.get(index, []),
    }


def pci_address(bus_id: str) -> str:
    """An address as the kernel writes it: nvidia-smi's domain has eight digits, in upper case."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:] if domain[:-4].strip('0') == '' else domain}:{rest}"


def mig_devices(listing: str) -> dict[int, list[dict[str, str]]]:
    """The MIG devices by the index of their GPU, from what ``nvidia-smi --list-gpus`` prints."""
    found: dict[int, list[dict[str, str]]] = {}
    index = -1
    for line in listing.splitlines():
        gpu = re.match(r"GPU (\d+):", line)
        if gpu:
            index = int(gpu[1])
        device = re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)", line)
        if device:
            found.setdefault(index, []).append({"profile": device[1], "uuid": device[2]})
    return found
