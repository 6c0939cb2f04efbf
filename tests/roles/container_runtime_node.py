"""A node as container_runtime reads it, and what the role's variables come to on it, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/container_runtime"
CAPABLE, NOT_CAPABLE = "000001ffffffffff", "000001fffeffffff"
LIMITS = "Max open files      {nofile} {nofile} files\nMax locked memory   {memlock} {memlock} bytes\n"
DROP_IN = "/etc/systemd/system/kubelet.service.d/90-rankzero-limits.conf"

MAIN = {"path": "/etc/containerd/config.toml", "text": "version = 3\n", "mode": "0644"}
CRI = {
    "crictl": "/usr/bin/crictl",
    "answers": True,
    "ready": True,
    "runtimes": {"runc": {}},
    "default": "runc",
    "cdi": None,
    "problem": "",
    "base_specs": {},
}
NVIDIA = {"BinaryName": "/usr/bin/nvidia-container-runtime"}
DRIVER = "580.95.05"


def machine(
    distribution: str = "kubeadm", gpus: int = 0, kind: str = "containerd", driver: str | None = None
) -> dict[str, Any]:
    """What machine_facts has that the role reads."""
    return {
        "os": {"family": "Debian"},
        "kernel": {"arch": "x86_64"},
        "gpus": [{}] * gpus,
        "driver": {"loaded": driver},
        "check_mode": False,
        "kubernetes": {"distribution": distribution},
        "runtime": {
            "kind": kind,
            "service": "k3s-agent" if distribution == "k3s" else kind,
            "socket": "/run/containerd/containerd.sock",
            "version": "2.2.1",
        },
    }


def node(
    capabilities: str = CAPABLE,
    services: tuple[str, ...] = ("containerd", "kubelet"),
    record: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    **read: Any,
) -> dict[str, Any]:
    """The result of tasks/read.yml on a node, with ``read`` on top."""
    return {
        "__container_runtime_node": {
            "record": record or {},
            "drop_ins": {},
            "process_1": {
                "limits": LIMITS.format(nofile=20000, memlock=8388608),
                "status": f"CapEff:\t{capabilities}",
                "uid_map": "0 0 4294967295",
            },
            "units": {name: unit(loaded=name in services) for name in ("containerd", "kubelet", "k3s-agent")},
            "down": [],
            "running": {},
            "nr_open": 1048576,
            "unwritable": [],
            "config": {"path": "/etc/containerd/config.toml", "files": [{**MAIN}]},
            "files": {},
            "sources": {},
            "cri": CRI,
            "gpus": {"devices": [], "unlinked": [], "cut_off": 0},
            "toolkit": {"runtime": "", "version": ""},
            "specifications": [],
            **read,
        },
        "machine_facts": facts or machine(),
        "machine_kubeconfig": "",
        "__container_runtime_os": load(ROLE / "vars/os/Debian.yml")["__container_runtime_os"],
        "__container_runtime_udev_text": "as asked",
        # Where the template is found is Ansible's affair during a play.
        "__container_runtime_drop_in_text": "as asked",
    }


def unit(
    nofile: str = "524288", memlock: str = "8388608", *, loaded: bool = True, waits: bool = False
) -> dict[str, str]:
    """What systemd shows of a service."""
    return {
        "LoadState": "loaded" if loaded else "not-found",
        "NeedDaemonReload": "yes" if waits else "no",
        "LimitNOFILE": nofile,
        "LimitMEMLOCK": memlock,
    }


ASKED_UNIT = unit("1048576", "infinity")
ASKED_PROCESS = LIMITS.format(nofile=1048576, memlock="unlimited")
EARLIER_PROCESS = LIMITS.format(nofile=524288, memlock=8388608)


def prepared(**read: Any) -> dict[str, Any]:
    """A node on which the role has done all with its defaults, with ``read`` on top."""
    done: dict[str, Any] = {
        "record": {"services": ["kubelet"], "files": {}},
        "drop_ins": {DROP_IN: "as asked"},
        "units": {"kubelet": ASKED_UNIT},
        "running": {"kubelet": ASKED_PROCESS},
    }
    return node(**(done | read))


def on(expression: str, described: dict[str, Any], **arguments: Any) -> Any:
    return evaluate(
        ROLE, expression, described | {f"container_runtime_{name}": value for name, value in arguments.items()}
    )


def refusals(described: dict[str, Any], **arguments: Any) -> list[str]:
    found: list[str] = on("__container_runtime_refusals", described, **arguments)
    return found


def status(described: dict[str, Any], **arguments: Any) -> str:
    found: str = on("__container_runtime_report.status", described, **arguments)
    return found


def with_gpus(runtimes: dict[str, Any] | None = None, toolkit: str = "1.20.2", **read: Any) -> dict[str, Any]:
    """A node with a GPU and the toolkit, with ``read`` on top."""
    facts = read.pop("facts", machine(gpus=1, driver=DRIVER))
    done: dict[str, Any] = {
        "toolkit": {"runtime": "/usr/bin/nvidia-container-runtime" if toolkit else "", "version": toolkit},
        "cri": CRI | {"runtimes": runtimes if runtimes is not None else {"runc": {}}},
        "files": {"/etc/udev/rules.d/71-rankzero-nvidia-dev-char.rules": "as asked"},
    }
    return prepared(facts=facts, **(done | read))


def written_config(**arguments: Any) -> dict[str, Any]:
    """containerd's files once the role has written them on a node with GPUs."""
    texts = on("__container_runtime_plan.write", with_gpus(), **arguments)
    files = [{"path": path, "text": text, "mode": "0644"} for path, text in texts.items()]
    return {"path": MAIN["path"], "files": files}


def whats(described: dict[str, Any], **arguments: Any) -> str:
    """What the report finds, on one line."""
    found = on("__container_runtime_report.findings", described, **arguments)
    return " ".join(finding["what"] for finding in found)
