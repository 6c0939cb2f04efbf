"""MOCK of hardware that test machines do not have: an RDMA card and a GPU behind one PCI switch, and their drivers.

Usage: ``mock_hardware.py '{"hcas": [...], "driver": "open", ...}'`` in a privileged container. The trees that the
kernel would show are laid over /sys with overlay mounts: programs see one /sys with what is real and what is not.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

OVERLAYS = Path("/run/mock")
BRIDGES = ["0000:15:01.0", "0000:16:00.0"]
DRIVERS = {
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
    "proprietary": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n",
}
GIDS = {
    "InfiniBand": ["fe80:0000:0000:0000:a288:c203:003b:506a IB/RoCE v1"],
    "Ethernet": [
        "fe80:0000:0000:0000:a288:c2ff:fe3b:506a IB/RoCE v1",
        "fe80:0000:0000:0000:a288:c2ff:fe3b:506a RoCE v2",
        "0000:0000:0000:0000:0000:ffff:0a0a:0001 IB/RoCE v1",
        "0000:0000:0000:0000:0000:ffff:0a0a:0001 RoCE v2",
    ],
}


def overlay(target: str, options: str = "") -> Path:
    """Make a folder of the kernel's writable for this container only."""
    upper, work = (OVERLAYS / kind / target.replace("/", "-") for kind in ("upper", "work"))
    for folder in (upper, work):
        folder.mkdir(parents=True)
    layers = f"lowerdir={target},upperdir={upper},workdir={work}{options}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, target], check=True)
    return Path(target)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def pci(address: str, above: list, **files: str) -> Path:
    """A device below the bridges ``above``, and where all devices are listed."""
    folder = Path("/sys/devices/pci0000:15", *above, address)
    for name, text in {"numa_node": "0", **files}.items():
        write(folder / name, f"{text}\n")
    link(Path("/sys/bus/pci/devices", address), folder)
    return folder


def hca(number: int, layer: str, state: str, physical: str, rate: str) -> None:
    name = f"mlx5_{number}"
    device = pci(f"0000:19:00.{number}", [*BRIDGES, "0000:17:01.0"], vendor="0x15b3", **{"class": "0x020700"})
    port = device / "infiniband" / name / "ports/1"
    described = {"link_layer": layer, "state": state, "phys_state": physical, "rate": rate}
    for file, text in described.items():
        write(port / file, f"{text}\n")
    for index, gid in enumerate(GIDS[layer]):
        text, kind = gid.split(" ", 1)
        write(port / "gids" / str(index), f"{text}\n")
        write(port / "gid_attrs/types" / str(index), f"{kind}\n")
    link(device / "infiniband" / name / "device", device)
    link(Path("/sys/class/infiniband", name), device / "infiniband" / name)


def verbs(count: int) -> None:
    """What ib_uverbs and rdma_ucm make, once they are loaded."""
    Path("/dev/infiniband").mkdir(exist_ok=True)
    for number in range(count):
        write(Path(f"/sys/class/infiniband_verbs/uverbs{number}/ibdev"), f"mlx5_{number}\n")
        subprocess.run(["mknod", f"/dev/infiniband/uverbs{number}", "c", "231", str(192 + number)], check=True)
    subprocess.run(["mknod", "/dev/infiniband/rdma_cm", "c", "10", "122"], check=True)


def program(name: str, text: str) -> None:
    path = Path("/usr/local/sbin", name)
    write(path, text)
    path.chmod(0o755)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    for target in ("/sys/devices", "/sys/class", "/sys/bus/pci/devices", "/sys/module", "/sys/kernel/mm"):
        overlay(target)
    for number, described in enumerate(wanted["hcas"]):
        hca(number, **described)
    pci("0000:18:00.0", [*BRIDGES, "0000:17:00.0"], vendor="0x10de", device="0x2330", **{"class": "0x030200"})
    # The driver, as the kernel tells of it, and the symbols of the RDMA core.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/proc/driver"], check=True)
    write(Path("/proc/driver/nvidia/version"), DRIVERS[wanted["driver"]])
    symbols = Path("/run/mock/kallsyms")
    write(
        symbols,
        "0 T ib_umem_dmabuf_get [ib_uverbs]\n0 T ib_register_peer_memory_client [ib_core]\n",
    )
    subprocess.run(["mount", "--bind", str(symbols), "/proc/kallsyms"], check=True)
    if wanted.get("verbs", True):
        verbs(len(wanted["hcas"]))
    if wanted.get("unregistered_peermem"):
        write(Path("/sys/module/nvidia_peermem/refcnt"), "0\n")
    # The kernel of a container's host loads no modules for it.
    program("modinfo", f"#!/bin/sh\necho {wanted.get('peermem_needs', 'ib_core,nvidia')}\n")
    program(
        "modprobe",
        "#!/bin/sh\n"
        f'echo "$@" >> {OVERLAYS}/modprobe\n'
        'case "$*" in\n'
        "*--remove*nvidia-peermem)\n"
        "  rm -r /sys/module/nvidia_peermem /sys/module/ib_core /sys/kernel/mm/memory_peers ;;\n"
        "*nvidia-peermem)\n"
        "  mkdir -p /sys/module/nvidia_peermem /sys/module/ib_core/holders/nvidia_peermem\n"
        "  mkdir -p /sys/kernel/mm/memory_peers/nv_mem\n"
        "  echo 0 > /sys/module/nvidia_peermem/refcnt\n"
        "  echo 535.183.01 > /sys/kernel/mm/memory_peers/nv_mem/version ;;\n"
        "esac\n",
    )
    os.sync()


if __name__ == "__main__":
    main()
