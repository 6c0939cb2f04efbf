"""Filters of the role nvidia_driver: how a node compares with what it is to have, and the report. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

FABRIC_FINE = ("Completed", "N/A", "[N/A]", "Not Supported")
"""What nvidia-smi says of a GPU that joined the NVLink fabric, or that has none to join."""

INDEPENDENT = ("nvidia-modprobe", "nvidia-persistenced", "nvidia-settings", "nvidia-xconfig", "libxnvctrl0")
"""Packages that distributions build from sources of their own, with versions that look like a driver's."""

ASKED = ("source", "branch", "version", "modules", "hold", "fabric_manager")

Finding = dict[str, str]


def state(
    installed: Mapping[str, Mapping[str, Any]],
    node: Mapping[str, Any],
    wanted: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """How a node compares with what is ``wanted``; ``node`` is what nvidia_driver_read returned.

    ``change`` tells whether packages have to be changed.
    """
    versions = [installed[name]["upstream"] for name in wanted["driver"] if name in installed]
    found = package_findings(installed, wanted, arguments["version"])
    missing = [name for name in wanted["beside"] if name not in node["packages"]]
    wrong_kind = [name for name in wanted["other_kind"] if name in installed] if wanted["modules"] else []
    enabled = [name for name, service in node["services"].items() if service["enabled"]]
    return {
        "installed": installed,
        "version": versions[0] if versions else "",
        "package_findings": found,
        "missing_beside": missing,
        "other_branch": other_branch(installed, wanted),
        "wrong_kind": wrong_kind,
        "loose": sorted(name for name in installed if not installed[name]["held"]) if arguments["hold"] else [],
        "change": bool(found or missing or wrong_kind),
        "idle_services": [name for name in wanted["services"] if name in node["services"] and name not in enabled],
    }


def package_findings(installed: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Any], exact: str) -> list[str]:
    """A sentence for each way in which the ``installed`` packages of a driver are not those ``wanted``.

    ``exact`` is the version asked for, empty for any of the branch.
    """
    driver, fabric = wanted["driver"], wanted["fabric_manager"]
    kept = {name: package for name, package in installed.items() if name in [*driver, *fabric]}
    sentences = [f"the package {name} is not installed" for name in driver if name not in installed]
    if fabric and not set(fabric) & set(installed):
        sentences.append(f"the package {fabric[0]} is not installed, and the node has NVSwitches")
    sentences += [
        f"{name} is installed in version {installed[name]['version']}, not of branch {wanted['branch']}"
        for name in other_branch(installed, wanted)
    ]
    sentences += [
        f"{name} is installed in version {package['version']}, not {exact}"
        for name, package in kept.items()
        if exact and package["upstream"] != exact
    ]
    bound = {name: package for name, package in installed.items() if name in kept or name not in INDEPENDENT}
    versions = sorted({package["upstream"] for name, package in bound.items() if package["branch"] == wanted["branch"]})
    if len(versions) > 1:
        sentences.append(f"the driver's packages have different versions: {', '.join(versions)}")
    return sentences


def other_branch(installed: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Any]) -> list[str]:
    """Names of the packages that belong to another branch of the driver."""
    apart = {*wanted["beside"], *INDEPENDENT} - {*wanted["driver"]}
    return [
        name
        for name, package in sorted(installed.items())
        if package["branch"] != wanted["branch"] and name not in apart
    ]


def wrong_files(wanted: Mapping[str, str], live: Mapping[str, str | None]) -> dict[str, str]:
    """The texts of those files that are not there or say something else, by path."""
    return {path: text for path, text in wanted.items() if live.get(path) != text}


def module_findings(modules: Mapping[str, Mapping[str, str]], kernel: str, asked: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with the kernel module for the ``kernel`` that boots next.

    ``asked`` has ``version``, ``modules`` (open, proprietary or empty for either), ``secure_boot`` and ``beside``, the
    packages that bring headers or modules.
    """
    if not kernel:
        return []
    module = modules.get(kernel, {"version": "", "license": "", "signer": ""})
    remedy = f"Install {' and '.join(asked['beside'])} for it, then run `dkms autoinstall -k {kernel}`."
    if module["version"] != asked["version"]:
        has = f"the module {module['version']}" if module["version"] else "no nvidia module"
        return [_error(f"kernel {kernel}, which boots next, has {has}, and {asked['version']} is installed", remedy)]
    found = []
    kind = "open" if "MIT" in module["license"] else "proprietary"
    if asked["modules"] and kind != asked["modules"]:
        found.append(
            _error(
                f"kernel {kernel} has the {kind} modules; these GPUs are asked to run with the {asked['modules']} ones",
                "Run again with nvidia_driver_allow_branch_change=true; the other packages are then removed.",
            )
        )
    if asked["secure_boot"] and not module["signer"]:
        found.append(
            _error(
                f"the nvidia module of kernel {kernel} is not signed, and Secure Boot refuses it",
                "Enrol the key that dkms signs with (mokutil --import); Ubuntu's own driver comes signed.",
            )
        )
    return found


def runtime_findings(facts: Mapping[str, Any], node: Mapping[str, Any], managed: bool) -> list[Finding]:
    """What is wrong with a driver that is loaded in the version that is installed.

    ``facts`` are machine_facts, ``node`` is what nvidia_driver_read returned. ``managed`` is false for a driver that
    something else installs, such as an operator's container: then the node itself need not have its programs.
    """
    found = []
    driver, smi, gpus = facts["driver"], facts["smi"], len(facts["gpus"])
    if smi is not None and len(smi["gpus"]) != gpus:
        found.append(
            _error(
                f"nvidia-smi sees {len(smi['gpus'])} GPUs, the PCI bus has {gpus}",
                "Read `dmesg | grep -i -e nvrm -e xid` for the one that is missing.",
            )
        )
    if smi is None and managed:
        found.append(_error("nvidia-smi does not answer", "Run nvidia-smi and read `dmesg | grep -i nvrm`."))
    if not node["uvm"]:
        found.append(
            _error(
                "/dev/nvidia-uvm is not there, so CUDA does not start",
                "Run `nvidia-modprobe -u -c=0`; rankzero-nvidia-devices.service does it at each boot.",
            )
        )
    slow = [mode for mode in node["persistence"] if mode != "Enabled"]
    # The daemon alone proves nothing: Ubuntu's runs with --no-persistence-mode.
    if managed and (slow or (not node["persistence"] and driver["persistenced"] != "active")):
        found.append(
            _error(
                f"GPUs have no persistence mode (nvidia-persistenced is {driver['persistenced']}); each first use "
                "initialises them anew",
                "Run `nvidia-smi -pm 1`, as rankzero-nvidia-devices.service does at each boot, and see "
                "`systemctl status nvidia-persistenced`.",
            )
        )
    if managed and facts["nvswitches"]:
        found += _fabric_findings(driver, node)
    return found


def _fabric_findings(driver: Mapping[str, Any], node: Mapping[str, Any]) -> list[Finding]:
    fabric = driver["fabricmanager"]
    found = []
    if fabric["version"] and fabric["version"] != driver["loaded"]:
        found.append(
            _error(
                f"the fabric manager is of version {fabric['version']}, the driver of {driver['loaded']}",
                "Both have to be of exactly one version; run the role again.",
            )
        )
    if fabric["state"] != "active":
        found.append(
            _error(
                f"the node has NVSwitches and nvidia-fabricmanager is {fabric['state']}; CUDA fails with error 802",
                "Run `systemctl status nvidia-fabricmanager`.",
            )
        )
    states = sorted({state for state in node["fabric"] if state not in FABRIC_FINE})
    if states:
        found.append(
            _error(
                f"GPUs are not part of the NVLink fabric: {', '.join(states)}",
                "Read /var/log/fabricmanager.log; a GPU reset or a restart of the fabric manager joins them.",
            )
        )
    return found


def drift(found: Mapping[str, Any], refusals: Sequence[str], wrong: Sequence[str]) -> list[Finding]:
    """What a run would change or refuse, of a result of :func:`state`, for a run that only looks."""
    lists = {
        "not installed": found["missing_beside"],
        "of the other kind of kernel modules": found["wrong_kind"],
        "not held": found["loose"],
        "not as the role writes it": wrong,
        "not started at boot": found["idle_services"],
    }
    sentences = [*refusals, *found["package_findings"]]
    sentences += [f"{what}: {', '.join(names)}" for what, names in lists.items() if names]
    return [_error(sentence, "Run playbooks/site.yml; what it refuses, it says why.") for sentence in sentences]


def reboot_reasons(facts: Mapping[str, Any], installed: str) -> list[str]:
    """Why the node has to boot before the driver ``installed`` is the one that runs."""
    loaded = facts["driver"]["loaded"]
    if not installed:
        return []
    if has_nouveau(facts):
        return ["nouveau has the GPUs"]
    if not loaded:
        return [f"the driver {installed} is installed and not loaded"]
    if loaded != installed:
        return [
            f"the driver {installed} is installed, and {loaded} is the one that runs, so that every new CUDA program "
            'fails with "driver/library version mismatch"'
        ]
    return []


def unusable(facts: Mapping[str, Any], node: Mapping[str, Any], installed: str) -> bool:
    """Whether the driver of a node must not be trained with, whatever is asked for; ``installed`` is its version."""
    broken = not facts["driver"]["loaded"] or reboot_reasons(facts, installed) or runtime_findings(facts, node, True)
    return bool(broken)


def has_nouveau(facts: Mapping[str, Any]) -> bool:
    """Whether nouveau is loaded or drives a GPU."""
    return "nouveau" in facts["driver"]["modules"] or any(gpu["driver"] == "nouveau" for gpu in facts["gpus"])


def foreign_findings(facts: Mapping[str, Any], asked_branch: int) -> list[Finding]:
    """What is wrong with a driver that something else than the role installs."""
    loaded, found = facts["driver"]["loaded"], []
    if has_nouveau(facts):
        remedy = "Turn it off in the image (blacklist nouveau, options nouveau modeset=0, a new initramfs) and reboot."
        found.append(_error("nouveau has the GPUs", remedy))
    if not loaded:
        remedy = "See to whatever installs the driver here, or let the role do it with another nvidia_driver_source."
        found.append(_error("no NVIDIA driver is loaded, and nvidia_driver_source is none", remedy))
    elif not loaded.startswith(f"{asked_branch}."):
        remedy = "Set nvidia_driver_branch to what the cluster runs, so that nodes which differ are told."
        found.append(_warning(f"the driver {loaded} is not of branch {asked_branch}", remedy))
    return found


def managed_findings(
    facts: Mapping[str, Any], node: Mapping[str, Any], wanted: Mapping[str, Any], version: str
) -> list[Finding]:
    """What is wrong with a driver of the role's, whose installed ``version`` it is, before it runs."""
    found = []
    asked = {
        "version": version,
        "modules": wanted["modules"],
        "beside": wanted["beside"],
        "secure_boot": facts["secure_boot"],
    }
    if version:
        kernel = facts["kernel"]
        booting = kernel["next"] or next(iter(kernel["installed"]), "")
        wrong = module_findings(node["modules"], booting, asked)
        if booting not in (kernel["next"], kernel["release"]):  # another one than the newest may boot
            wrong = [
                _warning(finding["what"].replace("which boots", "which may boot"), finding["fix"]) for finding in wrong
            ]
        found += wrong
    if has_nouveau(facts) and not node["programs"]:
        what = "no program that rebuilds the initramfs is there, so one with nouveau in it stays"
        found.append(_warning(what, "Rebuild the initramfs by hand before the reboot."))
    return found


def report(
    facts: Mapping[str, Any],
    node: Mapping[str, Any],
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    arguments: Mapping[str, Any],
    history: Mapping[str, Any],
    drifted: Sequence[Finding] = (),
) -> dict[str, Any]:
    """What the role publishes: machine_facts, nvidia_driver_read's result and :func:`state` judged in the end.

    ``history`` has ``moved_from``, the version that the role had installed where it found another one, ``rebooted``,
    whether this run rebooted the node, and ``held_back``, whether a change of packages lacks leave.
    """
    managed, loaded = arguments["source"] != "none", facts["driver"]["loaded"] or ""
    reasons = reboot_reasons(facts, found["version"]) if managed else []
    findings = list(drifted)
    if managed:
        findings += managed_findings(facts, node, wanted, found["version"])
        if history["moved_from"] and found["version"]:
            moved = f"from {history['moved_from']} to {found['version']}"
            what = f"the driver was moved {moved} by something else than this role"
            remedy = "Look in /var/log/apt/history.log or `dnf history` for what did it, and keep it from the driver."
            findings.append(_warning(what, remedy))
    else:
        findings += foreign_findings(facts, arguments["branch"])
    if loaded and not reasons:
        findings += runtime_findings(facts, node, managed)
    if history["rebooted"]:
        remedy = "Read `dmesg | grep -i -e nvrm -e nouveau` and `dkms status`; another reboot will not help."
        findings += [_error(f"after the reboot {reason}", remedy) for reason in reasons]
    errors = [finding["what"] for finding in findings if finding["severity"] == "error"]
    waits = f"{'; '.join(reasons)}. Drain the node and reboot it, or run again with nvidia_driver_reboot_ok=true."
    if history["held_back"]:
        waits = (
            f"{'; '.join(found['package_findings'])}. New packages make new CUDA programs fail until the node reboots: "
            "run playbooks/upgrade_driver.yml, or drain the node and run again with nvidia_driver_reboot_ok=true."
        )
    status = "failed" if errors else "waiting" if reasons or history["held_back"] else "ok"
    return {
        "status": status,
        "why": {"failed": "; ".join(errors), "waiting": waits, "ok": ""}[status],
        "findings": findings,
        "asked": asked(arguments),
        "version": found["version"] if managed else loaded,
        "loaded": loaded,
        "modules": facts["driver"]["kind"] or wanted["modules"],
        "architectures": list(wanted["architectures"]),
        "fabric_manager": facts["driver"]["fabricmanager"]["version"] or "",
        "reboot_required": bool(reasons),
    }


def asked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that say the same for every node of a cluster."""
    return {key: arguments[key] for key in ASKED}


def sentence(finding: Finding) -> str:
    """A finding in one line."""
    return f"{finding['severity']}: {finding['what']}. {finding['fix']}"


def _error(what: str, fix: str) -> Finding:
    return {"severity": "error", "what": what, "fix": fix}


def _warning(what: str, fix: str) -> Finding:
    return {"severity": "warning", "what": what, "fix": fix}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "nvidia_driver_state": state,
            "nvidia_driver_wrong_files": wrong_files,
            "nvidia_driver_drift": drift,
            "nvidia_driver_report": report,
            "nvidia_driver_unusable": unusable,
            "nvidia_driver_asked": asked,
            "nvidia_driver_sentence": sentence,
        }
