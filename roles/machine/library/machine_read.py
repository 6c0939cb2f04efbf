#!/usr/bin/python
"""Ansible module of the role machine: all that roles decide on about a node, read in one call."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine import facts

DOCUMENTATION = r"""
module: machine_read
short_description: Read what there is to know about a node
description:
  - Reads the operating system, PCI devices, driver, CPUs, network interfaces, RDMA devices and the services that run
    pods and containers. Changes nothing. What a node does not have or does not tell is empty or null.
options:
  limit:
    description: >-
      Seconds that the programs on the node which are asked (nvidia-smi and others) have to answer. nvidia-smi is asked
      again, for as long, if it has answered once.
    type: float
    required: true
"""

RETURN = r"""
os:
  description: C(id), C(version), C(codename), C(family) (Debian, RedHat or empty) and C(name) of the distribution.
  returned: always
  type: dict
kernel:
  description: >-
    C(release), C(arch) and C(cmdline) of the running kernel; the releases C(installed), newest first, the one that
    boots C(next), null where the boot loader does not tell, and those with C(headers).
  returned: always
  type: dict
container:
  description: What kind of container the node is, as systemd calls it; empty for none.
  returned: always
  type: str
virtual_machine:
  description: What kind of virtual machine the node is or runs in, as systemd calls it; empty for none.
  returned: always
  type: str
cgroup_version:
  description: 2 for the unified hierarchy, else 1.
  returned: always
  type: int
secure_boot:
  description: Whether the firmware checks signatures; null where it does not tell.
  returned: always
  type: bool
memory_mib:
  description: Memory in MiB.
  returned: always
  type: int
hugepages:
  description: Huge pages set aside, C(size_kib), C(total) and NUMA C(node).
  returned: always
  type: list
disks:
  description: C(free_mib) and C(total_mib) of the file systems behind the folders (C(path)) that fill up.
  returned: always
  type: list
clock_synchronized:
  description: Whether the clock is kept right; null where the kernel does not tell.
  returned: always
  type: bool
gpus:
  description: >-
    NVIDIA GPUs on the PCI bus, C(address), C(device) (four hexadecimal digits), kernel C(driver), C(numa_node), the
    C(cpus) near it and the C(path) of bridges from the root to it.
  returned: always
  type: list
nvswitches:
  description: NVSwitches on the PCI bus, C(address) and C(device).
  returned: always
  type: list
driver:
  description: >-
    Version C(loaded) and C(kind) (open or proprietary) of the kernel module, version C(installed) of the libraries,
    C(packages), loaded C(modules), lines of C(dkms), kernels it was C(built) for, C(persistenced), C(fabricmanager).
  returned: always
  type: dict
smi:
  description: >-
    C(gpus), C(driver), C(cuda) and C(topology) as nvidia-smi tells them; null where it tells nothing.
  returned: always
  type: dict
smi_problem:
  description: Why nvidia-smi tells nothing, a sentence; empty where it does.
  returned: always
  type: str
cpus:
  description: >-
    Numbers of the CPUs C(online) and C(offline); for each online one its C(core), C(socket) and NUMA C(node).
  returned: always
  type: dict
numa:
  description: NUMA nodes, C(node), C(cpus) and C(memory_mib).
  returned: always
  type: list
nics:
  description: >-
    Network interfaces, C(name), C(kind), C(driver), C(mac), C(mtu), C(speed_mbit), C(up), C(master), PCI C(address),
    C(numa_node), C(path), C(ipv4), C(ipv6) and the C(rdma) devices on it.
  returned: always
  type: list
default_interface:
  description: Interface of the default route, empty for none.
  returned: always
  type: str
ports:
  description: C(ephemeral) range, C(reserved) ports as the kernel writes them, and the TCP ports C(listening).
  returned: always
  type: dict
rdma:
  description: RDMA devices, C(name), C(netdevs), C(address), C(numa_node), C(path) and C(ports) with their C(gids).
  returned: always
  type: list
kubernetes:
  description: >-
    C(distribution) (kubeadm, k3s, rke2, none), C(service), C(version), whether it is a C(server), and what the
    kubelet's own configuration says of C(fail_cgroup_v1).
  returned: always
  type: dict
runtime:
  description: >-
    C(kind) (containerd, crio, none), C(service), C(socket) and C(version) of the container runtime, and the C(root)
    folder below which it unpacks images.
  returned: always
  type: dict
services:
  description: For each known service whether it is C(loaded) and C(active).
  returned: always
  type: dict
hostname:
  description: The node's host name.
  returned: always
  type: str
check_mode:
  description: Whether nothing may be changed. C(ansible_check_mode) does not tell where a play sets C(check_mode).
  returned: always
  type: bool
"""


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={"limit": {"type": "float", "required": True}},
        supports_check_mode=True,
    )
    root = Path("/")
    node = facts.read(root, os.uname(), facts.ask(root, module.params["limit"]))
    module.exit_json(changed=False, **node, check_mode=module.check_mode)


if __name__ == "__main__":
    main()
