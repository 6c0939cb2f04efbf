"""Filters of the role cpu_manager: what a node's kubelet has, and how that differs from what is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

OVERRIDING = (
    *("cpu-manager-policy", "cpu-manager-policy-options", "reserved-cpus", "topology-manager-policy"),
    *("topology-manager-scope", "topology-manager-policy-options", "memory-manager-policy", "reserved-memory"),
)
"""Options of the kubelet's command line that win over its configuration files."""

OURS = (
    *("cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs", "topologyManagerPolicy"),
    *("topologyManagerScope", "topologyManagerPolicyOptions", "memoryManagerPolicy", "reservedMemory"),
    "singleProcessOOMKill",
)
"""Settings of the kubelet that the role may change."""

CONFIG_ARGS = "KUBELET_CONFIG_ARGS"
"""Variable of kubeadm's unit for the kubelet that holds ``--config``."""


def files(read: Mapping[str, Any], text: str, name: str, unit_file: str, is_kubeadm: bool) -> dict[str, str | None]:
    """The files that have to be there, by path, None for one that must not be.

    ``text`` is the kubelet's configuration, empty for none. K3s and RKE2 pass a folder of drop-ins to their kubelet by
    themselves; kubeadm's is told of it by a drop-in of its unit, unless it was told already.
    """
    wanted = {f"{read['folder']}/{name}": text}
    if is_kubeadm and (not read["has_folder_option"] or read["files"].get(unit_file)):
        wanted[unit_file] = unit(read["environment"], read["folder"])
    earlier = dict.fromkeys(read["record"].get("files", []))
    return earlier | {path: content if text else None for path, content in wanted.items()}


def unit(environment: Mapping[str, str], folder: str) -> str:
    """The systemd drop-in that makes kubeadm's kubelet read a folder of drop-ins."""
    option = f"--config-dir={folder}"
    words = [word for word in environment.get(CONFIG_ARGS, "").split() if word != option]
    return (
        "# Written by rankzero's role cpu_manager: the kubelet's own configuration is rewritten by `kubeadm upgrade`,\n"
        "# the files of this folder are not.\n"
        f'[Service]\nEnvironment="{CONFIG_ARGS}={" ".join([*words, option])}"\n'
    )


def differences(
    read: Mapping[str, Any], wanted: Mapping[str, str | None], expected: Mapping[str, str | None], online: str
) -> list[str]:
    """A sentence for each thing about the node that is not as asked for."""
    found = []
    for path, content in wanted.items():
        present = read["files"].get(path)
        if content is None and present is not None:
            found.append(f"{path} is there and not asked for.")
        elif content is not None and present is None:
            found.append(f"{path} is not there.")
        elif content != present:
            found.append(f"{path} is not as asked for.")
    if not read["active"]:
        found.append("The kubelet does not run.")
    if not read["record"].get("finished", True):
        found.append("An earlier run broke off before it had proved its change and given the node back.")
    for manager, policy in expected.items():
        live = read["policies"][manager]
        if policy is not None and live != policy:
            found.append(f"The kubelet's {manager} manager has the policy {live or 'none'}, not {policy}.")
    before = read["record"].get("online", online)
    if before != online and expected["cpu"] == "static":
        found.append(
            f"The CPUs {before} were online when the policy was set, and now {online} are: the kubelet's notes of who "
            "has which CPU are worth nothing."
        )
    return found


def overriding(read: Mapping[str, Any]) -> list[str]:
    """Options of the kubelet's command line that would win over the role's configuration."""
    return sorted(set(OVERRIDING) & set(read["options"]))


def unsupported(options: Sequence[str], known: Mapping[str, str], version: str) -> list[str]:
    """A phrase for each policy option that this kubelet does not have."""
    return [
        f"{option} (from {known[option]} on)" if option in known else option
        for option in options
        if option not in known or _numbers(known[option]) > _numbers(version)
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split("-")[0].split("+")[0].split(".")[:2] if word.isdecimal())


def without_device_specs(daemon_sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Device plugins of NVIDIA and HAMi that do not tell the kubelet which devices a container has.

    When the CPU manager then sets a container's CPUs, the runtime takes its GPUs away (NVIDIA/k8s-device-plugin#145).
    CDI puts the devices into the container's own specification, which is as good.
    """
    found = set()
    for one in daemon_sets:
        for container in one["spec"]["template"]["spec"]["containers"]:
            told = _told(container, "PASS_DEVICE_SPECS", "--pass-device-specs")
            if told is None and "k8s-device-plugin" not in container.get("image", ""):
                continue
            strategy = _told(container, "DEVICE_LIST_STRATEGY", "--device-list-strategy") or ""
            if (told or "").lower() != "true" and "cdi" not in strategy:
                found.add(f"{one['metadata']['namespace']}/{one['metadata']['name']}")
    return sorted(found)


def _told(container: Mapping[str, Any], variable: str, option: str) -> str | None:
    """What a container is told by an option of its command line, else by its environment."""
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    given = [word.partition("=")[2] or "true" for word in words if word.partition("=")[0] == option]
    environment = {entry["name"]: entry.get("value", "") for entry in container.get("env") or []}
    return given[-1] if given else environment.get(variable)


def findings(sentences: Sequence[str], severity: str, fix: str) -> list[dict[str, str]]:
    """The sentences as the reports have them."""
    return [{"severity": severity, "what": sentence, "fix": fix} for sentence in sentences]


def mismatches(config: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
    """A sentence for each setting of ``config`` that the kubelet does not have, by what it says about itself."""
    return [
        f"The kubelet says {key} is {json.dumps(live.get(key))}, not {json.dumps(value)}."
        for key, value in config.items()
        if not _holds(value, live.get(key))
    ]


def strayed(live: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """A sentence for each other setting that the restart has changed: its own files had changed since it was started.

    ``live`` and ``before`` are what the kubelet says about itself; nothing where one of them is not known.
    """
    return [
        f"The kubelet's {key}, none of the role's, was {json.dumps(value)} before the restart and is now "
        f"{json.dumps(live.get(key))}."
        for key, value in before.items()
        if live and key not in OURS and live.get(key) != value
    ]


def _holds(asked: Any, live: Any) -> bool:
    """Maps are merged by the kubelet, so that more may be there."""
    if isinstance(asked, Mapping):
        return isinstance(live, Mapping) and all(_holds(value, live.get(key)) for key, value in asked.items())
    return bool(asked == live)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "cpu_manager_files": files,
            "cpu_manager_differences": differences,
            "cpu_manager_overriding": overriding,
            "cpu_manager_unsupported": unsupported,
            "cpu_manager_without_device_specs": without_device_specs,
            "cpu_manager_findings": findings,
            "cpu_manager_mismatches": mismatches,
            "cpu_manager_strayed": strayed,
        }
