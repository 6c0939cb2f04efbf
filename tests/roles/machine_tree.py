"""Writes the files of /proc, /sys and /etc of a machine that is not there, from facts as `machine_read` returns them.

``machine_tree.py FACTS.json FOLDER`` writes them on a node, where molecule/shared/tasks/gpu_machine.yml mounts them.
Only the standard library, for any Python from 3.9: the file is copied to nodes.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Facts = Mapping[str, Any]

SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MIB_IN_KB = 1024


def write(facts: Facts, root: Path) -> None:
    """Write all of it below ``root``. Links to devices are absolute: they hold where a folder is mounted elsewhere."""
    write_system(facts, root)
    write_processors(facts, root)
    write_gpus(facts, root)
    write_driver(facts, root)
    write_network(facts, root)
    write_rdma(facts, root)
    write_nvidia_smi(facts, root)


def write_system(facts: Facts, root: Path) -> None:
    """The distribution, kernels, memory, secure boot and cgroups."""
    system, kernel = facts["os"], facts["kernel"]
    kin = {"Debian": "debian", "RedHat": "rhel fedora"}[system["family"]]
    put(
        root / "etc/os-release",
        f'PRETTY_NAME="{system["name"]}"\nVERSION_ID="{system["version"]}"\nVERSION_CODENAME={system["codename"]}\n'
        f'ID={system["id"]}\nID_LIKE="{kin}"\n',
    )
    put(root / "proc/cmdline", kernel["cmdline"] + "\n")
    put(root / "proc/meminfo", f"MemTotal:       {facts['memory_mib'] * MIB_IN_KB} kB\n")
    for release in kernel["installed"]:
        put(root / "lib/modules" / release / "modules.dep", "kernel/drivers/net/veth.ko:\n")
        put(root / f"boot/vmlinuz-{release}", "")
    if kernel["next"]:
        write_boot_menu(kernel["next"], system["family"], root)
    for release in kernel["headers"]:
        put(root / "usr/src" / f"linux-headers-{release}" / "Makefile", "")
        link(root / "lib/modules" / release / "build", root / "usr/src" / f"linux-headers-{release}")
    if facts["cgroup_version"] == 2:
        put(root / "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
    write_secure_boot(facts, root)
    for pool in facts["hugepages"]:
        folder = root / f"sys/devices/system/node/node{pool['node']}/hugepages/hugepages-{pool['size_kib']}kB"
        put(folder / "nr_hugepages", f"{pool['total']}\n")


def write_boot_menu(release: str, family: str, root: Path) -> None:
    """GRUB's menu with a kernel as its first entry; Red Hat's family names it in GRUB's environment instead."""
    if family == "RedHat":
        put(root / "boot/grub2/grub.cfg", 'set default="${saved_entry}"\nblscfg\n')
        put(root / "boot/grub2/grubenv", f"# GRUB Environment Block\nsaved_entry=0123abcd-{release}\n####")
    else:
        entry = f"menuentry 'Linux' {{\n\tlinux\t/boot/vmlinuz-{release} root=/dev/sda1 ro\n}}\n"
        put(root / "boot/grub/grub.cfg", f'set default="0"\n{entry}')


def write_secure_boot(facts: Facts, root: Path) -> None:
    """The firmware's variable, where secure boot is on; a machine without UEFI where it is off."""
    firmware = root / "sys/firmware"
    firmware.mkdir(parents=True, exist_ok=True)
    if facts["secure_boot"]:
        variables = firmware / "efi/efivars"
        variables.mkdir(parents=True, exist_ok=True)
        (variables / SECURE_BOOT).write_bytes(b"\x06\x00\x00\x00\x01")


def write_processors(facts: Facts, root: Path) -> None:
    """CPUs and NUMA nodes."""
    folder, cpus = root / "sys/devices/system/cpu", facts["cpus"]
    put(folder / "online", number_list(cpus["online"]))
    put(folder / "offline", number_list(cpus["offline"]))
    # The kernel counts cores within a socket, and may leave gaps.
    core_ids: dict[tuple[int, int], int] = {}
    for cpu in cpus["cpus"]:
        siblings = [other["cpu"] for other in cpus["cpus"] if other["core"] == cpu["core"]]
        topology = folder / f"cpu{cpu['cpu']}" / "topology"
        put(topology / "thread_siblings_list", number_list(siblings))
        put(topology / "physical_package_id", f"{cpu['socket']}\n")
        put(topology / "core_id", f"{4 * core_ids.setdefault((cpu['socket'], cpu['core']), len(core_ids))}\n")
    for node in facts["numa"]:
        folder = root / f"sys/devices/system/node/node{node['node']}"
        put(folder / "cpulist", number_list(node["cpus"]))
        put(folder / "meminfo", f"Node {node['node']} MemTotal:       {node['memory_mib'] * MIB_IN_KB} kB\n")


def write_gpus(facts: Facts, root: Path) -> None:
    """GPUs and NVSwitches on the PCI bus."""
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for gpu in facts["gpus"]:
        device = pci_device(root, gpu["address"], gpu["path"], gpu["numa_node"], gpu["driver"])
        put(device / "vendor", "0x10de\n")
        put(device / "device", f"0x{gpu['device'].lower()}\n")
        put(device / "class", "0x030200\n")
        put(device / "local_cpulist", number_list(gpu["cpus"]))
    for switch in facts["nvswitches"]:
        device = pci_device(root, switch["address"], [], None, None)
        put(device / "vendor", "0x10de\n")
        put(device / "device", f"0x{switch['device'].lower()}\n")
        put(device / "class", "0x068000\n")


def write_driver(facts: Facts, root: Path) -> None:
    """What the kernel and DKMS have of the driver."""
    driver = facts["driver"]
    put(root / "sys/module/kernel/parameters/panic", "0\n")
    for name in driver["modules"]:
        put(root / "sys/module" / name / "initstate", "live\n")
    (root / "proc/driver").mkdir(parents=True, exist_ok=True)
    if driver["loaded"]:
        form = {
            "open": "NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build  (builder@host)",
            "proprietary": "NVIDIA UNIX {arch} Kernel Module  {version}  Tue Sep 16 15:00:00 UTC 2025",
        }[driver["kind"]]
        told = form.format(arch=facts["kernel"]["arch"], version=driver["loaded"])
        put(root / "proc/driver/nvidia/version", f"NVRM version: {told}\nGCC version:  gcc version 12.3.0\n")
    for release in driver["built"]:
        dependencies = root / "lib/modules" / release / "modules.dep"
        put(dependencies, "kernel/drivers/net/veth.ko:\nupdates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst\n")
        put(dependencies, dependencies.read_text(encoding="utf-8") + "updates/dkms/nvidia.ko.zst:\n")
    for line in driver["dkms"]:
        name, _, state = line.partition(": ")
        module, release, arch = name.split(", ")
        build = root / "var/lib/dkms" / module / release / arch
        (build / "module").mkdir(parents=True, exist_ok=True)
        if state == "installed":
            link(
                root / "var/lib/dkms/nvidia" / f"kernel-{release}-{arch}",
                build.relative_to(root / "var/lib/dkms/nvidia"),
            )
    if driver["installed"]:
        library = root / "usr/lib/x86_64-linux-gnu" / f"libnvidia-ml.so.{driver['installed']}"
        put(library, "")
        link(library.parent / "libnvidia-ml.so.1", library)


def write_network(facts: Facts, root: Path) -> None:
    """Network interfaces, the default route and ports."""
    for index, nic in enumerate(facts["nics"], start=1):
        folder = root / "sys/class/net" / nic["name"]
        put(folder / "ifindex", f"{index}\n")
        put(folder / "type", "772\n" if nic["kind"] == "loopback" else "1\n")
        put(folder / "address", f"{nic['mac']}\n")
        put(folder / "mtu", f"{nic['mtu']}\n")
        put(folder / "speed", f"{nic['speed_mbit'] or -1}\n")
        put(folder / "operstate", "up\n" if nic["up"] else "down\n")
        if nic["master"]:
            link(folder / "master", root / "sys/class/net" / nic["master"])
        if nic["address"]:
            device = pci_device(root, nic["address"], nic["path"], nic["numa_node"], nic["driver"])
            link(folder / "device", device)
            if nic["rdma"]:
                (device / "net" / nic["name"]).mkdir(parents=True, exist_ok=True)
    routes = f"{facts['default_interface']} 00000000 010200C0 0003 0 0 100 00000000 0 0 0\n"
    put(root / "proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n" + routes)
    ports = facts["ports"]
    put(root / "proc/sys/net/ipv4/ip_local_port_range", "\t".join(map(str, ports["ephemeral"])) + "\n")
    put(root / "proc/sys/net/ipv4/ip_local_reserved_ports", ports["reserved"] + "\n")
    rows = [f"   {n}: 00000000:{port:04X} 00000000:0000 0A 00000000\n" for n, port in enumerate(ports["listening"])]
    put(root / "proc/net/tcp", "  sl  local_address rem_address   st\n" + "".join(rows))


def addresses(facts: Facts) -> str:
    """What ``ip -json -details address show`` would print."""
    links = []
    for nic in facts["nics"]:
        words = [("inet", word) for word in nic["ipv4"]] + [("inet6", word) for word in nic["ipv6"]]
        infos = [
            {"family": family, "local": word.partition("/")[0], "prefixlen": int(word.partition("/")[2])}
            for family, word in words
        ]
        info = {"info_kind": nic["kind"]} if nic["kind"] in ("bond", "bridge", "vlan", "veth") else {}
        links.append({"ifname": nic["name"], "linkinfo": info, "addr_info": infos})
    return json.dumps(links)


def write_rdma(facts: Facts, root: Path) -> None:
    """RDMA devices with their ports and GID tables, unused entries included."""
    for rdma in facts["rdma"]:
        folder = root / "sys/class/infiniband" / rdma["name"]
        device = pci_device(root, rdma["address"], rdma["path"], rdma["numa_node"], "mlx5_core")
        folder.mkdir(parents=True, exist_ok=True)
        link(folder / "device", device)
        for name in rdma["netdevs"]:
            (device / "net" / name).mkdir(parents=True, exist_ok=True)
        for port in rdma["ports"]:
            place = folder / f"ports/{port['port']}"
            put(place / "state", f"4: {port['state']}\n")
            put(place / "phys_state", f"5: {port['phys_state']}\n")
            put(place / "link_layer", f"{port['layer']}\n")
            put(place / "rate", f"{port['rate']}\n")
            for index in range(8):
                put(place / f"gids/{index}", "0000:0000:0000:0000:0000:0000:0000:0000\n")
            for gid in port["gids"]:
                put(place / f"gids/{gid['index']}", f"{gid['gid']}\n")
                put(place / f"gid_attrs/types/{gid['index']}", f"{gid['type']}\n")


def write_nvidia_smi(facts: Facts, root: Path) -> None:
    """A program that answers like nvidia-smi to the questions of the roles; none where the facts say it is missing."""
    smi, driver = facts["smi"], facts["driver"]
    if smi is None and not driver["installed"]:
        return
    program = root / "bin/nvidia-smi"
    if smi is None:
        said = str(facts["smi_problem"]).partition(" ended with status 18: ")[2]
        put(program, f"#!/bin/sh\n# A stand-in, made by a test.\necho {shlex.quote(said)}\nexit 18\n")
    else:
        rows = [
            f"{gpu['index']}, {gpu['uuid']}, {gpu['name']}, {gpu['memory_mib'] or '[N/A]'}, "
            f"{'0' * 4}{gpu['address'].upper()}, {'Enabled' if gpu['mig'] else 'Disabled'}, {smi['driver']}"
            for gpu in smi["gpus"]
        ]
        listing = []
        for gpu in smi["gpus"]:
            listing.append(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
            for number, part in enumerate(gpu["mig_devices"]):
                listing.append(f"  MIG {part['profile']}     Device  {number}: (UUID: {part['uuid']})")
        summary = (
            f"| NVIDIA-SMI {smi['driver']}    Driver Version: {smi['driver']}    CUDA Version: {smi['cuda']}     |"
        )
        put(
            program,
            "#!/bin/sh\n# A stand-in, made by a test.\n"
            'case "$*" in\n'
            f"*--query-gpu=index,uuid,*) {printing(rows)} ;;\n"
            f"*--list-gpus* | -L) {printing(listing)} ;;\n"
            f"*topo*) {printing([smi['topology'].rstrip()])} ;;\n"
            f'"") {printing([summary])} ;;\n'
            '*) echo "this stand-in does not know: $*" >&2; exit 2 ;;\n'
            "esac\n",
        )
    program.chmod(0o755)


def printing(lines: Sequence[str]) -> str:
    """A shell command that prints the lines."""
    return "printf '%s\\n' " + " ".join(map(shlex.quote, lines)) if lines else ":"


def pci_device(root: Path, address: str, path: Sequence[str], numa_node: int | None, driver: str | None) -> Path:
    """The folder of a PCI device below its bridges, and the link to it among all devices."""
    first = (path or [address])[0]
    device = root.joinpath("sys/devices", f"pci{first[: first.rindex(':')]}", *path, address)
    put(device / "numa_node", f"{-1 if numa_node is None else numa_node}\n")
    if driver:
        link(device / "driver", root / "sys/bus/pci/drivers" / driver)
    link(root / "sys/bus/pci/devices" / address, device)
    return device


def put(file: Path, text: str) -> None:
    """Write a file and the folders that it needs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def link(place: Path, target: Path) -> None:
    """A link from ``place`` to ``target``, whether or not it was there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_symlink():
        place.symlink_to(target)


def number_list(numbers: Sequence[int]) -> str:
    """Numbers as the kernel writes them: ``0-3,8``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, part)) for part in ranges) + "\n"


if __name__ == "__main__":
    facts_file, folder = sys.argv[1:]
    write(json.loads(Path(facts_file).read_text(encoding="utf-8")), Path(folder))
