"""Puts together all that is read about a node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import cluster, driver, infiniband, network, pci, processors, programs, smi, system

CONTAINER = ("systemd-detect-virt", "--container")
VIRTUAL_MACHINE = ("systemd-detect-virt", "--vm")


def read(root: Path, me: os.uname_result, answers: Mapping[str, programs.Answer]) -> dict[str, Any]:
    """The facts of the node with these files, this kernel and these answers; what nobody tells is left empty."""
    units = cluster.parse_units(answers["units"].output)
    kubernetes = cluster.kubernetes(root, units, answers)
    runtime = cluster.runtime(root, units, kubernetes["distribution"], kubernetes["service"], answers)
    devices = infiniband.devices(root)
    nodes = processors.numa(root)
    smi_facts, smi_problem = smi.read(answers)
    packages = driver.parse_packages(answers["dpkg"].output or answers["rpm"].output)
    return {
        "hostname": me.nodename,
        "os": system.operating_system(root),
        "kernel": system.kernel(root, me.release, me.machine),
        "container": _virtualization(answers["container"]),
        "virtual_machine": _virtualization(answers["virtual_machine"]),
        "cgroup_version": system.cgroup_version(root),
        "secure_boot": system.secure_boot(root),
        "memory_mib": system.memory_mib(root),
        "hugepages": system.hugepages(root),
        "disks": system.disks(root, runtime["root"]),
        "clock_synchronized": system.clock_synchronized(),
        **pci.nvidia(root),
        "driver": driver.driver(root, packages, {name: cluster.state(units[name]) for name in cluster.NVIDIA_SERVICES}),
        "smi": smi_facts,
        "smi_problem": smi_problem,
        "cpus": processors.cpus(root, nodes),
        "numa": nodes,
        "nics": network.nics(root, answers["addresses"].output, devices),
        "default_interface": network.default_interface(root),
        "ports": network.ports(root),
        "rdma": devices,
        "kubernetes": kubernetes,
        "runtime": runtime,
        "services": cluster.services(units),
    }


def ask(root: Path, limit: float) -> dict[str, programs.Answer]:
    """The answers of all programs, by what they are for. They have ``limit`` seconds together.

    nvidia-smi has as long again once it has answered the first question, and is left alone while one hangs already.
    """
    commands = {
        "addresses": network.ADDRESSES,
        "container": CONTAINER,
        "virtual_machine": VIRTUAL_MACHINE,
        "units": cluster.UNITS,
        "dpkg": driver.DPKG,
        "rpm": driver.RPM,
        **cluster.VERSIONS,
    }
    hanging = programs.hanging(root, smi.PROGRAM, limit)
    answers = programs.run(commands if hanging else {**commands, **smi.QUESTION}, limit)
    first = answers.setdefault("smi_gpus", programs.Answer(None, "", hanging))
    return answers if first.problem else {**answers, **programs.run(smi.DETAILS, limit)}


def _virtualization(answer: programs.Answer) -> str:
    """The name that systemd gives it; it says none, with status 1, where there is none."""
    name = answer.output.strip()
    return "" if name == "none" else name
