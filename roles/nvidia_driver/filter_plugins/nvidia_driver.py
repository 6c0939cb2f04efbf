"""Filters of the role nvidia_driver: from hardware to kernel modules, packages and versions. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

FLAVOR = re.compile(r"\d[\d.]*(?:-[\d.]+)?(?:\+\w+)?-(?P<flavor>[a-z].*)")
"""A kernel release of Debian or Ubuntu: version, ABI, perhaps the release it is built for, flavour."""
DISTRIBUTION_FILES = {"debian": "Debian", "ubuntu": "Ubuntu", "rhel": "RedHat", "rocky": "RedHat"}
BRANCHES = range(300, 1000)
"""Numbers that a package's version can begin with to be one of a driver; some packages have a year there."""


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


def wanted_driver(
    facts: Mapping[str, Any], arguments: Mapping[str, Any], sources: Mapping[str, Any], pci: Mapping[str, Any]
) -> dict[str, Any]:
    """What a node is to have, from its hardware and the role's arguments (their names without the role's).

    ``facts`` are machine_facts, ``sources`` are rows of an operating system by source, ``pci`` has the tables of
    vars/main/pci.yml. The names of packages are empty where the operating system has no such source.
    """
    found = architectures(facts["gpus"], pci["ranges"], pci["exceptions"])
    choice = module_choice(found, {**arguments, **pci}, pci["architectures"])
    kernel_flavor = arguments["kernel_flavor"] or flavor(facts["kernel"]["release"])
    rows, kind = sources.get(arguments["source"], []), choice["modules"] or "open"
    names = package_names(rows, arguments["branch"], kind, kernel_flavor)
    other = package_names(rows, arguments["branch"], {"open": "proprietary"}.get(kind, "open"), kernel_flavor)
    own = [name.replace("{branch}", str(arguments["branch"])) for name in arguments["packages"]]
    switched = {"required": True, "none": False}.get(arguments["fabric_manager"], bool(facts["nvswitches"]))
    driver = own or names.get("driver", [])
    return {
        "branch": arguments["branch"],
        "architectures": found,
        "modules": choice["modules"],
        "refusals": choice["refusals"],
        "known": bool(names),
        "driver": driver,
        "beside": [*names.get("beside", []), *arguments["extra_packages"]] if names else [],
        "other_kind": [name for name in other.get("driver", []) if name not in driver],
        "fabric_manager": names.get("fabric_manager", []) if switched else [],
        "switched": switched,
        "signed": names.get("signed", False),
        "stream": names.get("stream", ""),
        "services": ["nvidia-persistenced", *(["nvidia-fabricmanager"] if switched else [])],
    }


def installed_driver(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those of the installed packages that are of an NVIDIA driver, told by their versions.

    Packages such as the container toolkit match the same patterns and have versions of their own.
    """
    return {
        name: {**package, "upstream": upstream(package["version"]), "branch": branch(package["version"])}
        for name, package in found.items()
        if branch(package["version"]) in BRANCHES and not name.startswith("linux-")
    }


def choose(
    versions: Mapping[str, Sequence[str]], wanted: Mapping[str, Any], installed: Iterable[str], exact: str
) -> dict[str, Any]:
    """The newest version of the branch that all packages are there in, and the packages with their full versions.

    ``wanted`` is a result of :func:`wanted_driver`. Packages that are ``installed`` already come along where there is
    such a version of them: what they need is given without an upper end, so that apt would leave them behind. Without
    a version ``version`` is empty and ``offered`` has what there is of the branch, by package.
    """
    driver, fabric = wanted["driver"], wanted["fabric_manager"]
    offered = {
        name: {upstream(full): full for full in reversed(found) if branch(full) == wanted["branch"]}
        for name, found in versions.items()
    }
    offered |= {name: {} for name in [*driver, *fabric] if name not in offered}
    common = set.intersection(*(set(offered[name]) for name in driver)) if driver else set()
    if fabric:
        common &= {version for name in fabric for version in offered[name]}
    if exact:
        common &= {exact}
    if not common:
        return {"version": "", "packages": {}, "offered": {name: sorted(offered[name]) for name in [*driver, *fabric]}}
    version = max(common, key=_numbers)
    chosen = [*driver, *[name for name in fabric if version in offered[name]][:1]]
    chosen += [name for name in installed if name not in chosen and version in offered.get(name, {})]
    return {"version": version, "packages": {name: offered[name][version] for name in chosen}, "offered": {}}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def unavailable(versions: Mapping[str, Sequence[str]], needed: Sequence[str], fabric: Sequence[str]) -> list[str]:
    """Names of ``needed`` packages that no repository has; of the ``fabric`` names one is enough."""
    missing = [name for name in needed if not versions.get(name)]
    return missing + ([fabric[0]] if fabric and not any(versions.get(name) for name in fabric) else [])


def pinned(item: Mapping[str, str], sign: str = "=") -> str:
    """A package (``key``) in one version (``value``), as apt is told; dnf takes a dash."""
    return f"{item['key']}{sign}{item['value']}"


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "nvidia_driver_branch": branch,
            "nvidia_driver_os_file": os_file,
            "nvidia_driver_wanted": wanted_driver,
            "nvidia_driver_installed": installed_driver,
            "nvidia_driver_choose": choose,
            "nvidia_driver_unavailable": unavailable,
            "nvidia_driver_pinned": pinned,
        }
