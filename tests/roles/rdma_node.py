"""A node as rdma reads it, and what the role's variables come to on it, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

from scripts.cache import REPO
from tests.roles.templating import evaluate

ROLE = REPO / "roles/rdma"


SWITCH = ["0000:15:01.0", "0000:16:00.0"]


MAPPED = {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0ac8:010a", "type": "RoCE v2"}


GPU = {"address": "0000:18:00.0", "path": [*SWITCH, "0000:17:00.0"], "numa_node": 0}


FOUND = {"rdma-ndd", "ibv_devinfo"}


def port(layer: str = "InfiniBand", **told: Any) -> dict[str, Any]:
    described = {"port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    return described | {"layer": layer, "gids": [MAPPED] if layer == "Ethernet" else []} | told


def hca(name: str = "mlx5_0", **told: Any) -> dict[str, Any]:
    return {
        "name": name,
        "address": "0000:19:00.0",
        "path": [*SWITCH, "0000:17:01.0"],
        "numa_node": 0,
        "netdevs": ["eth1"],
        "ports": [port(**told)],
    }


def facts(*hcas: dict[str, Any], gpus: tuple[dict[str, Any], ...] = (GPU,), **told: Any) -> dict[str, Any]:
    """machine_facts as role machine registers them, as far as the role reads them."""
    described: dict[str, Any] = {
        "rdma": list(hcas),
        "gpus": list(gpus),
        "nics": [],
        "kernel": {"release": "6.8.0-90-generic"},
        "runtime": {"service": "containerd"},
        "virtual_machine": "",
    }
    return described | told


def node(*hcas: dict[str, Any], read: dict[str, Any] | None = None, **told: Any) -> dict[str, Any]:
    """A node on which everything is well: open driver, DMA-BUF, memlock without end; ``read`` and ``told`` on top."""
    peermem = {"loaded": False, "references": 0, "clients": [], "linked": False, "needs": ["ib_core", "nvidia"]}
    stack: dict[str, Any] = {
        "record": {},
        "modules_text": "",
        "verbs": [device["name"] for device in hcas],
        "rdma_cm": True,
        "peermem": peermem,
        "interfaces": {"peer": False, "dmabuf": True},
        "open_driver": True,
        "ofed": False,
        "memlock": ["unlimited", "unlimited"],
        "acs": {},
        "iommu": {},
        "missing_programs": [],
        "unwritable": [],
    }
    read = dict(read or {})
    stack["peermem"] = peermem | read.pop("peermem", {})
    described: dict[str, Any] = {
        "machine_facts": facts(*hcas, **told),
        "__rdma_node": stack | read,
        "ansible_managed": "Ansible",
    }
    described["ansible_search_path"] = [str(ROLE)]
    if "modules_text" not in read:
        described["__rdma_node"]["modules_text"] = evaluate(ROLE, "__rdma_modules_text", described)
    return described


def on(expression: str, described: dict[str, Any], **arguments: Any) -> Any:
    return evaluate(ROLE, expression, described | {f"rdma_{name}": value for name, value in arguments.items()})


def findings(described: dict[str, Any], severity: str, **arguments: Any) -> list[str]:
    found = on("__rdma_findings", described, **arguments)
    return [finding["what"] for finding in found if finding["severity"] == severity]
