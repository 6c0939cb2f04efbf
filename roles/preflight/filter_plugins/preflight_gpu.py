"""Filters of the role preflight: GPUs, their driver, and whether it can run the training image's CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Facts = Mapping[str, Any]
Finding = dict[str, str]


def gpu_findings(facts: Facts, plan: Facts, expected: int) -> list[Finding]:
    """Findings about GPUs and driver, of a node that should have ``expected`` GPUs (0: as many as there are).

    ``plan`` says what the role nvidia_driver will do: ``source`` (none where it does nothing), ``branch`` and
    ``own_key_enrolled``. What that role mends is a warning; without it the same is an error.
    """
    if not facts["gpus"]:
        return [
            *_expected(0, expected),
            {
                "severity": "info",
                "what": "there is no NVIDIA GPU on the PCI bus; driver, CUDA and NVSwitch were not looked at.",
                "fix": "Nothing, unless the machine should have one: then look at its seat, power and BIOS settings.",
            },
        ]
    mended = "warning" if plan["source"] != "none" else "error"
    return [
        *_expected(len(facts["gpus"]), expected),
        *_bound(facts["gpus"], mended),
        *_secure_boot(facts, plan),
        *_pending(facts, mended),
        *_next_kernel(facts, mended),
        *_switches(facts, mended),
        *_counted(facts),
    ]


def _expected(count: int, expected: int) -> Iterator[Finding]:
    """Without the number asked for, a GPU that does not come up at boot is missing everywhere, and nothing differs."""
    if count < expected:
        yield {
            "severity": "error",
            "what": f"the PCI bus shows {count} of the {expected} GPUs that the node should have (preflight_gpus).",
            "fix": "Look for the GPU's slot in the BMC's log and for PCI errors in `dmesg`; often a cold start of the "
            "machine brings it back, else its seat, its power or the GPU itself. If it was taken out on purpose, set "
            "preflight_gpus for this node.",
        }
    elif expected and count > expected:
        yield {
            "severity": "warning",
            "what": f"the PCI bus shows {count} GPUs, more than the {expected} of preflight_gpus.",
            "fix": f"Set preflight_gpus to {count}, so that one that is lost later is missed.",
        }


def _bound(gpus: list[Facts], mended: str) -> Iterator[Finding]:
    nouveau = [gpu["address"] for gpu in gpus if gpu["driver"] == "nouveau"]
    others = {gpu["address"]: gpu["driver"] for gpu in gpus if gpu["driver"] not in ("nvidia", "nouveau", None)}
    if nouveau:
        yield {
            "severity": mended,
            "what": f"nouveau holds {', '.join(nouveau)}; NVIDIA's driver cannot take a GPU from it.",
            "fix": "The role nvidia_driver turns it off, which needs a reboot (nvidia_driver_reboot_ok).",
        }
    for address, driver in others.items():
        yield {
            "severity": "error",
            "what": f"{driver} holds the GPU {address}, so that pods cannot have it.",
            "fix": f"Take the device from {driver} (for vfio-pci: its ids in /etc/modprobe.d or on the kernel's "
            "command line), or leave the node out of the inventory.",
        }


def _secure_boot(facts: Facts, plan: Facts) -> Iterator[Finding]:
    if not facts["secure_boot"] or facts["driver"]["loaded"] or plan["own_key_enrolled"]:
        return
    if plan["source"] == "distro" and facts["os"]["id"] == "ubuntu":
        yield {
            "severity": "info",
            "what": "secure boot is on; the driver's modules come signed by Ubuntu.",
            "fix": "Nothing.",
        }
        return
    yield {
        "severity": "error",
        "what": "secure boot is on and no driver is loaded; the kernel refuses modules that DKMS builds on the node, "
        "because nobody it trusts has signed them.",
        "fix": "On Ubuntu set nvidia_driver_source to distro, whose modules are signed. Elsewhere enrol DKMS's key "
        "(mokutil --import /var/lib/dkms/mok.pub, confirmed at the next boot) and set "
        "nvidia_driver_own_key_enrolled, or turn secure boot off in the firmware.",
    }


def _pending(facts: Facts, mended: str) -> Iterator[Finding]:
    driver = facts["driver"]
    if driver["loaded"] and driver["installed"] and driver["loaded"] != driver["installed"]:
        yield {
            "severity": mended,
            "what": f"driver {driver['loaded']} is loaded and {driver['installed']} is installed; programs fail with "
            '"driver/library version mismatch" until the node reboots.',
            "fix": "Drain the node and reboot it (nvidia_driver_reboot_ok lets the role nvidia_driver do it). If "
            "nobody upgraded on purpose, unattended upgrades did.",
        }
    elif driver["loaded"] is None and driver["installed"]:
        yield {
            "severity": mended,
            "what": f"driver {driver['installed']} is installed and not loaded.",
            "fix": "Reboot the node; if it stays so, `dmesg | grep -i nvidia` says why the module does not load.",
        }


def _next_kernel(facts: Facts, mended: str) -> Iterator[Finding]:
    """The driver's module for the kernel that boots next. Where no driver is installed yet, only the headers count.

    Where nothing tells which one boots, it may be the newest, which is worth a warning and no more.
    """
    kernel, driver = facts["kernel"], facts["driver"]
    booting = kernel["next"] or next(iter(kernel["installed"]), None)
    if booting is None or booting in driver["built"]:
        return
    severity = mended if booting in (kernel["next"], kernel["release"]) else "warning"
    boots = "will boot next" if kernel["next"] else "may boot next"
    if booting not in kernel["headers"]:
        yield {
            "severity": severity,
            "what": f"the kernel {booting} {boots} and has neither a driver module nor headers to build one.",
            "fix": "Install the headers by their meta package, so that they follow the kernel (linux-headers-generic, "
            "linux-headers-amd64 or kernel-devel-matched).",
        }
    elif driver["installed"]:
        yield {
            "severity": severity,
            "what": f"the kernel {booting} {boots} and the driver was not built for it.",
            "fix": f"`dkms autoinstall -k {booting}` builds it; if it fails, /var/lib/dkms/nvidia/*/build/make.log "
            "says why.",
        }


def _switches(facts: Facts, mended: str) -> Iterator[Finding]:
    manager, driver = facts["driver"]["fabricmanager"], facts["driver"]
    if not facts["nvswitches"]:
        return
    count = len(facts["nvswitches"])
    version = driver["installed"] or driver["loaded"]
    if manager["state"] != "active" or (version and manager["version"] not in (version, None)):
        yield {
            "severity": mended,
            "what": f"the machine has {count} NVSwitches, and its fabric manager is {manager['state']}"
            f"{' in version ' + manager['version'] if manager['version'] else ''}, the driver "
            f"{version or 'not installed'}; CUDA fails with error 802 unless both run in one version.",
            "fix": "The role nvidia_driver installs the fabric manager of the driver's version.",
        }
    else:
        yield {
            "severity": "info",
            "what": f"the machine has {count} NVSwitches, and fabric manager {manager['version']} runs.",
            "fix": "Nothing.",
        }


def _counted(facts: Facts) -> Iterator[Finding]:
    driver, smi = facts["driver"], facts["smi"]
    if not driver["loaded"] or driver["loaded"] != (driver["installed"] or driver["loaded"]):
        return
    if smi is None:
        yield {
            "severity": "error",
            "what": f"the driver is loaded, but {facts['smi_problem']}.",
            "fix": "Look for Xid messages in `dmesg`; a GPU that hangs needs a reset, often of the whole machine. "
            "Where nvidia-smi is only slow, start nvidia-persistenced or raise machine_answer_seconds.",
        }
        return
    missing = sorted({gpu["address"] for gpu in facts["gpus"]} - {gpu["address"] for gpu in smi["gpus"]})
    if missing:
        yield {
            "severity": "error",
            "what": f"nvidia-smi does not show the GPU {', '.join(missing)}, which is on the PCI bus.",
            "fix": "Look for Xid 79 (fallen off the bus) and for the driver's complaints in `dmesg`; the GPU may need "
            "the other kind of kernel modules, a cold start of the machine, or a repair.",
        }


def cuda_findings(facts: Facts, plan: Facts, cuda: str, branches: Mapping[str, int]) -> list[Finding]:
    """Whether the driver to be installed, or the one that is there, runs programs made with CUDA ``cuda``.

    ``branches`` has the oldest driver branch by CUDA's major version.
    """
    if not facts["gpus"]:
        return []
    driver = facts["driver"]
    planned = plan["source"] != "none"
    version = str(plan["branch"]) if planned else driver["installed"] or driver["loaded"]
    needed = branches[cuda.partition(".")[0]]
    if version is None:
        return [
            {
                "severity": "error",
                "what": "the node has no driver, and nvidia_driver_source is none.",
                "fix": f"Install branch {needed} or newer, or let the role do it with another nvidia_driver_source.",
            }
        ]
    if int(version.partition(".")[0]) >= needed:
        return []
    whose = "nvidia_driver_branch is" if planned else "the node's driver is"
    return [
        {
            "severity": "error",
            "what": f"the training image has CUDA {cuda}, which needs driver branch {needed} or newer, and {whose} "
            f"{version}.",
            "fix": f"{'Set nvidia_driver_branch to' if planned else 'Install branch'} {needed} or newer, or take an "
            "image with an older CUDA. Where the image carries the cuda-compat package of its CUDA version (forward "
            "compatibility, data-centre GPUs only), set preflight_cuda to the CUDA version of the driver itself.",
        }
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {"preflight_gpu_findings": gpu_findings, "preflight_cuda_findings": cuda_findings}
