"""Filters of the role nvidia_driver: which packages a node needs and what is wrong with what it has. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

FLAVOR = re.compile(r"\d[\d.]*(?:-[\d.]+)?(?:\+\w+)?-(?P<flavor>[a-z].*)")
"""A kernel release of Debian or Ubuntu: version, ABI, perhaps the release it is built for, flavour."""
DISTRIBUTION_FILES = {"debian": "Debian", "ubuntu": "Ubuntu", "rhel": "RedHat", "rocky": "RedHat"}
FABRIC_FINE = ("Completed", "N/A", "[N/A]", "Not Supported")
"""What nvidia-smi says of a GPU that joined the NVLink fabric, or that has none to join."""

BRANCHES = range(300, 1000)
"""Numbers that a package's version can begin with to be one of a driver; some packages have a year there."""

Finding = dict[str, str]


def upstream(package_version: str) -> str:
    """NVIDIA's version in that of a package: 580.95.05 in 1:580.95.05-0ubuntu1."""
    found = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", package_version)
    return found[1] if found else ""


def branch(version: str) -> int:
    """The branch of a driver or package version, 0 for none."""
    found = re.match(r"(?:\d+:)?(\d+)", version or "")
    return int(found[1]) if found else 0


def flavor(release: str) -> str:
    """The flavour of a kernel, as the names of its packages have it; empty where the release tells none."""
    found = FLAVOR.fullmatch(release)
    return found["flavor"] if found else ""


def os_file(system: Mapping[str, str]) -> str:
    """Name of the data file for an operating system, such as ``Debian-12`` or ``Ubuntu-24.04``; whether it is there is
    another matter."""
    version = system["version"] if system["id"] == "ubuntu" else system["version"].partition(".")[0]
    return f"{DISTRIBUTION_FILES.get(system['id'], system['id'])}-{version}"


def architecture(device: str, ranges: Iterable[Mapping[str, str]], exceptions: Mapping[str, str]) -> str:
    """Architecture of the GPU with a PCI device id: ``newer`` beyond the last range, ``older`` where none is known."""
    if device in exceptions:
        return exceptions[device]
    number = int(device, 16)
    for item in ranges:
        if int(item["first"], 16) <= number <= int(item["last"], 16):
            return item["architecture"]
    return "newer" if number > max(int(item["last"], 16) for item in ranges) else "older"


def architectures(
    gpus: Iterable[Mapping[str, Any]], ranges: Sequence[Mapping[str, str]], exceptions: Mapping[str, str]
) -> dict[str, list[str]]:
    """PCI addresses of the GPUs by architecture."""
    found: dict[str, list[str]] = {}
    for gpu in gpus:
        found.setdefault(architecture(gpu["device"], ranges, exceptions), []).append(gpu["address"])
    return dict(sorted(found.items()))


def module_choice(
    found: Mapping[str, Sequence[str]], asked: Mapping[str, Any], table: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The kind of kernel ``modules`` for the architectures ``found``, and ``refusals``, for which it is empty.

    ``asked`` has ``modules`` (auto, open or proprietary), ``branch``, ``first_open`` and ``last_proprietary``.
    """
    known = {name: table[name] for name in found if name in table}
    refusals = [
        f"the GPU at {', '.join(found[name])} is older than every architecture that the role knows. Take it out, or "
        "install its legacy driver yourself and set nvidia_driver_source to none."
        for name in found
        if name not in table
    ]
    for name, limits in known.items():
        if not limits["first"] <= asked["branch"] <= (limits["last"] or asked["branch"]):
            span = f"up to {limits['last']}" if limits["last"] else f"from {limits['first']} on"
            refusals.append(
                f"nvidia_driver_branch is {asked['branch']}, but the {name} GPU at {', '.join(found[name])} is driven "
                f"by branches {span}. Give one of those."
            )
    kinds = {name: set(limits["modules"]) for name, limits in known.items()}
    possible = set.intersection(*kinds.values()) if kinds else set()
    if known and not possible:
        needs = "; ".join(f"{name} at {', '.join(found[name])}: {'/'.join(sorted(kinds[name]))}" for name in known)
        refusals.append(
            f"no one kind of kernel modules drives all GPUs of the node ({needs}). Take one kind of GPU out."
        )
    if asked["branch"] > asked["last_proprietary"]:
        possible -= {"proprietary"}
    if asked["branch"] < asked["first_open"]:
        possible -= {"open"}
    wanted = [asked["modules"]] if asked["modules"] != "auto" else ["open", "proprietary"]
    chosen = [kind for kind in wanted if kind in possible]
    if not chosen and not refusals:
        refusals.append(
            f"nvidia_driver_modules is {asked['modules']}, but branch {asked['branch']} drives the {', '.join(found)} "
            f"GPUs of this node with {' or '.join(sorted(possible)) or 'no'} modules. Set it to auto, or give another "
            "branch."
        )
    return {"modules": chosen[0] if chosen and not refusals else "", "refusals": refusals}


def package_names(
    rows: Sequence[Mapping[str, Any]], asked_branch: int, modules: str, kernel_flavor: str
) -> dict[str, Any]:
    """Names of the packages of a branch: ``driver``, ``beside``, ``fabric_manager``, and ``signed`` and ``stream``.

    ``rows`` are those of an operating system and source, ``modules`` is open or proprietary. Empty where the system has
    no such source.
    """
    rows = [row for row in rows if row["from"] <= asked_branch]
    if not rows:
        return {}
    row = max(rows, key=lambda item: int(item["from"]))

    def filled(names: Iterable[str]) -> list[str]:
        return [name.format(branch=asked_branch, flavor=kernel_flavor) for name in names]

    return {
        "driver": filled(row[modules]),
        "beside": filled(row["beside"][modules]),
        "fabric_manager": filled(row["fabric_manager"]),
        "signed": row["signed"],
        "stream": filled([row["stream"][modules]])[0],
    }


def choose(
    versions: Mapping[str, Sequence[str]], driver: Sequence[str], fabric: Sequence[str], asked_branch: int, exact: str
) -> dict[str, Any]:
    """The newest version of the branch that all packages are there in, and the packages with their full versions.

    ``driver`` are names that are all needed, ``fabric`` are names of which one is. Without such a version ``version``
    is empty and ``offered`` has what there is of the branch, by package.
    """
    offered = {
        name: {upstream(full): full for full in reversed(versions.get(name, [])) if branch(full) == asked_branch}
        for name in [*driver, *fabric]
    }
    common = set.intersection(*(set(offered[name]) for name in driver)) if driver else set()
    if fabric:
        common &= {version for name in fabric for version in offered[name]}
    if exact:
        common &= {exact}
    if not common:
        return {"version": "", "packages": {}, "offered": {name: sorted(found) for name, found in offered.items()}}
    version = max(common, key=_numbers)
    chosen = [*driver, *[name for name in fabric if version in offered[name]][:1]]
    return {"version": version, "packages": {name: offered[name][version] for name in chosen}, "offered": {}}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def installed_driver(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those of the installed packages that are of an NVIDIA driver, told by their versions.

    Packages such as the container toolkit match the same patterns and have versions of their own.
    """
    return {
        name: {**package, "upstream": upstream(package["version"])}
        for name, package in found.items()
        if branch(package["version"]) in BRANCHES and not name.startswith("linux-")
    }


def package_findings(
    found: Mapping[str, Mapping[str, Any]], driver: Sequence[str], fabric: Sequence[str], asked: Mapping[str, Any]
) -> list[str]:
    """A sentence for each way in which the installed packages are not what is asked for.

    ``found`` is a result of :func:`installed_driver`; ``asked`` has ``branch``, ``version`` (empty for any of the
    branch) and ``beside``, the names of packages whose versions do not matter.
    """
    kept = {name: package for name, package in found.items() if name in [*driver, *fabric]}
    sentences = [f"the package {name} is not installed" for name in driver if name not in found]
    if fabric and not set(fabric) & set(found):
        sentences.append(f"the package {fabric[0]} is not installed, and the node has NVSwitches")
    sentences += [
        f"{name} is installed in version {package['version']}, not of branch {asked['branch']}"
        for name, package in found.items()
        if branch(package["version"]) != asked["branch"] and name not in asked["beside"]
    ]
    sentences += [
        f"{name} is installed in version {package['version']}, not {asked['version']}"
        for name, package in kept.items()
        if asked["version"] and package["upstream"] != asked["version"]
    ]
    versions = sorted({package["upstream"] for package in kept.values()})
    if len(versions) > 1:
        sentences.append(f"the driver's packages have different versions: {', '.join(versions)}")
    return sentences


def pinned(item: Mapping[str, str], sign: str = "=") -> str:
    """A package (``key``) in one version (``value``), as apt is told; dnf takes a dash."""
    return f"{item['key']}{sign}{item['value']}"


def unavailable(versions: Mapping[str, Sequence[str]], needed: Sequence[str], fabric: Sequence[str]) -> list[str]:
    """Names of ``needed`` packages that no repository has; of the ``fabric`` names one is enough."""
    missing = [name for name in needed if not versions.get(name)]
    return missing + ([fabric[0]] if fabric and not any(versions.get(name) for name in fabric) else [])


def wrong_files(wanted: Mapping[str, str], live: Mapping[str, str | None]) -> list[str]:
    """Paths of the files that are not there or say something else."""
    return [path for path, text in wanted.items() if live.get(path) != text]


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
    if managed and driver["persistenced"] != "active":
        found.append(
            _error(
                f"nvidia-persistenced is {driver['persistenced']}; each first use of a GPU then initialises it anew",
                "Run `systemctl status nvidia-persistenced`.",
            )
        )
    if managed and facts["nvswitches"]:
        found += _fabric_findings(driver, node)
    return found


def _fabric_findings(driver: Mapping[str, Any], node: Mapping[str, Any]) -> list[Finding]:
    fabric = driver["fabricmanager"]
    found = []
    if fabric["version"] and upstream(fabric["version"]) != driver["loaded"]:
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


def findings(sentences: Iterable[str], severity: str, fix: str) -> list[Finding]:
    """A finding for each sentence."""
    return [{"severity": severity, "what": sentence, "fix": fix} for sentence in sentences]


def notes(items: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """The findings in ``items``, without the keys that are not theirs."""
    return [{key: str(item[key]) for key in ("severity", "what", "fix")} for item in items]


def sentence(finding: Finding) -> str:
    """A finding in one line."""
    return f"{finding['severity']}: {finding['what']}. {finding['fix']}"


def _error(what: str, fix: str) -> Finding:
    return {"severity": "error", "what": what, "fix": fix}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "nvidia_driver_upstream": upstream,
            "nvidia_driver_branch": branch,
            "nvidia_driver_flavor": flavor,
            "nvidia_driver_os_file": os_file,
            "nvidia_driver_architectures": architectures,
            "nvidia_driver_module_choice": module_choice,
            "nvidia_driver_package_names": package_names,
            "nvidia_driver_choose": choose,
            "nvidia_driver_installed": installed_driver,
            "nvidia_driver_package_findings": package_findings,
            "nvidia_driver_unavailable": unavailable,
            "nvidia_driver_pinned": pinned,
            "nvidia_driver_wrong_files": wrong_files,
            "nvidia_driver_findings": findings,
            "nvidia_driver_notes": notes,
            "nvidia_driver_sentence": sentence,
            "nvidia_driver_module_findings": module_findings,
            "nvidia_driver_runtime_findings": runtime_findings,
        }
