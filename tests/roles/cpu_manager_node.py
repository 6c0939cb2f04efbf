"""A node as cpu_manager reads it, and what the role's variables come to on it, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/cpu_manager"


DGX: dict[str, Any] = load(REPO / "tests/roles/samples/dgx-h100.yml")


FOLDER = "/etc/kubernetes/kubelet.conf.d"


FILE = "99-rankzero-cpu-manager.conf"


UNIT = "/etc/systemd/system/kubelet.service.d/90-rankzero-cpu-manager.conf"


KUBEADM = {"KUBELET_CONFIG_ARGS": "--config=/var/lib/kubelet/config.yaml"}


def read(**parts: Any) -> dict[str, Any]:
    """What the role reads from a kubeadm node that it has not touched."""
    untouched = {
        "active": True,
        "member": True,
        "folder": FOLDER,
        "has_folder_option": False,
        "options": {"config": "/var/lib/kubelet/config.yaml"},
        "environment": KUBEADM,
        "files": {f"{FOLDER}/{FILE}": None, UNIT: None},
        "health_url": "http://127.0.0.1:10248/healthz",
        "unwritable": [],
        "policies": {"cpu": "none", "memory": "None"},
        "record": {},
    }
    return untouched | parts


def on(expression: str, facts: dict[str, Any] = DGX, live: dict[str, Any] | None = None, **arguments: Any) -> Any:
    described = {
        "machine_facts": facts,
        "machine_kubeconfig": "/k",
        "ansible_search_path": [str(ROLE)],
        "__cpu_manager_read": live or read(),
    }
    return evaluate(ROLE, expression, described | {f"cpu_manager_{name}": value for name, value in arguments.items()})


def refusals(facts: dict[str, Any] = DGX, live: dict[str, Any] | None = None, **arguments: Any) -> list[str]:
    found: list[str] = on("__cpu_manager_refusals", facts, live, **arguments)
    return found


def kubelet(version: str) -> dict[str, Any]:
    return DGX | {"kubernetes": DGX["kubernetes"] | {"version": version}}


def asked(**parts: Any) -> dict[str, Any]:
    """What the role reads from a node on which it has done all with its defaults."""
    files = on("__cpu_manager_asked_files")
    record = on("__cpu_manager_record") | {"finished": True}
    return read(files=files, policies={"cpu": "static", "memory": "None"}, record=record, **parts)


K3S = DGX | {"kubernetes": {"distribution": "k3s", "service": "k3s-agent", "version": "v1.33.5+k3s1", "server": False}}
