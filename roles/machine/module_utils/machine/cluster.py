"""The node's part in a Kubernetes cluster: who starts pods and containers, and which services run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import files
from .programs import Answer

SERVICES = ("containerd", "kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "crio", "docker")
NVIDIA_SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager")

UNITS = (
    *("systemctl", "show", "--property=Id,LoadState,ActiveState,MainPID", "--"),
    *(f"{name}.service" for name in (*SERVICES, *NVIDIA_SERVICES)),
)

K3S_CONTAINERD = "/var/lib/rancher/k3s/data/current/bin/containerd"
RKE2_CONTAINERD = "/var/lib/rancher/rke2/bin/containerd"

VERSIONS: Mapping[str, tuple[str, ...]] = {
    "kubelet": ("kubelet", "--version"),
    "k3s": ("k3s", "--version"),
    "rke2": ("rke2", "--version"),
    "containerd": ("containerd", "--version"),
    "k3s_containerd": (K3S_CONTAINERD, "--version"),
    "rke2_containerd": (RKE2_CONTAINERD, "--version"),
    "crio": ("crio", "--version"),
}

K3S_SOCKET = "/run/k3s/containerd/containerd.sock"

Units = Mapping[str, Mapping[str, str]]


def parse_units(shown: str) -> dict[str, dict[str, str]]:
    """Properties by service, from what :data:`UNITS` prints; each of its services is there."""
    absent = {"LoadState": "not-found", "ActiveState": "inactive", "MainPID": "0"}
    units = {name: dict(absent) for name in (*SERVICES, *NVIDIA_SERVICES)}
    for block in shown.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = properties.get("Id", "").replace(".service", "")
        if name in units:
            units[name].update(properties)
    return units


def services(units: Units) -> dict[str, dict[str, bool]]:
    """Whether systemd has each of :data:`SERVICES`, and whether it runs."""
    return {name: {"loaded": _loaded(units[name]), "active": _active(units[name])} for name in SERVICES}


def state(unit: Mapping[str, str]) -> str:
    """active, inactive (also for one that fails) or absent."""
    if not _loaded(unit):
        return "absent"
    return "active" if _active(unit) else "inactive"


def _loaded(unit: Mapping[str, str]) -> bool:
    return unit["LoadState"] == "loaded"


def _active(unit: Mapping[str, str]) -> bool:
    return unit["ActiveState"] == "active"


def _chosen(units: Units, names: tuple[str, ...]) -> str:
    """The first of the services that runs, else the first that is there, else nothing."""
    there = [name for name in names if _loaded(units[name])]
    return next((name for name in there if _active(units[name])), there[0] if there else "")


def version_in(answer: Answer | None, form: str) -> str | None:
    """What fits ``form`` in an answer; None where there is none."""
    found = re.search(form, answer.output) if answer else None
    return found[0] if found else None


def kubernetes(root: Path, units: Units, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Who runs pods here. ``fail_cgroup_v1`` is what the kubelet's own configuration says, None for nothing."""
    service = _chosen(units, ("k3s", "k3s-agent", "rke2-server", "rke2-agent", "kubelet"))
    distribution = {"": "none", "kubelet": "kubeadm"}.get(service, service.partition("-")[0])
    program = {"kubeadm": "kubelet"}.get(distribution, distribution)
    return {
        "distribution": distribution,
        "service": service,
        "version": version_in(answers.get(program), r"v\d+\.\d+\.\d+[-+.\w]*"),
        "server": service in ("k3s", "rke2-server") or (root / "etc/kubernetes/manifests/kube-apiserver.yaml").exists(),
        "fail_cgroup_v1": _fail_cgroup_v1(root, units[service]["MainPID"] if service else "0"),
    }


def _fail_cgroup_v1(root: Path, process: str) -> bool | None:
    """From the file and the folder of drop-ins that the running kubelet was given; the last that says it counts."""
    options = dict(re.findall(r"--(config(?:-dir)?)[=\0]([^\0]+)", files.text(root / "proc" / process / "cmdline")))
    folder = root / options.get("config-dir", "var/lib/rancher/k3s/agent/etc/kubelet.conf.d").lstrip("/")
    config = root / options.get("config", "var/lib/kubelet/config.yaml").lstrip("/")
    told = None
    for file in (config, *(path for path in files.entries(folder) if path.suffix == ".conf")):
        found = re.search(r"^[^#\n]*\bfailCgroupV1[\"']?\s*:\s*(true|false)\b", files.text(file), re.MULTILINE)
        told = found[1] == "true" if found else told
    return told


def runtime(root: Path, units: Units, distribution: str, service: str, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Who runs containers for the kubelet, or would, and the ``root`` folder below which it unpacks images."""
    form = r"(?<=v)\d+\.\d+\.\d+[-+.\w]*|(?<= )\d+\.\d+\.\d+[-+.\w]*"
    if distribution in ("k3s", "rke2"):
        version = version_in(answers.get(f"{distribution}_containerd"), form)
        return {
            "kind": "containerd",
            "service": service,
            "socket": K3S_SOCKET,
            "version": version,
            "root": image_folder(root, distribution),
        }
    kind = _chosen(units, ("containerd", "crio"))
    socket = {"containerd": "/run/containerd/containerd.sock", "crio": "/run/crio/crio.sock"}.get(kind, "")
    return {
        "kind": kind or "none",
        "service": kind,
        "socket": socket,
        "version": version_in(answers.get(kind), form),
        "root": image_folder(root, kind),
    }


def image_folder(root: Path, who: str) -> str:
    """Where containerd, crio, k3s or rke2 unpack images; without any of them, where containerd would."""
    if who in ("k3s", "rke2"):
        folder = root / "etc/rancher" / who
        data = _told(
            r"^data-dir:\s*[\"']?([^\s\"'#]+)", [folder / "config.yaml", *files.entries(folder / "config.yaml.d")]
        )
        return f"{data or f'/var/lib/rancher/{who}'}/agent/containerd"
    if who == "crio":
        drop_ins = files.entries(root / "etc/crio/crio.conf.d")
        places = [root / "etc/containers/storage.conf", root / "etc/crio/crio.conf", *drop_ins]
        return _told(r"^\s*(?:graph)?root\s*=\s*[\"']([^\"']+)", places) or "/var/lib/containers/storage"
    return _told(r"\A[^\[]*?^root\s*=\s*[\"']([^\"']+)", [root / "etc/containerd/config.toml"]) or "/var/lib/containerd"


def _told(form: str, places: Sequence[Path]) -> str:
    """What ``form`` finds in the last of the files that has it."""
    found = [match[1] for place in places for match in re.finditer(form, files.text(place), re.MULTILINE)]
    return found[-1] if found else ""
