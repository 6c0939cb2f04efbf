"""A node as host_tuning reads it, and what the role's variables come to on it, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

from scripts.cache import REPO
from tests.roles.templating import evaluate

ROLE = REPO / "roles/host_tuning"


KERNEL = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
    "net.core.somaxconn": "4096",
    "net.ipv4.tcp_max_syn_backlog": "4096",
    "net.ipv4.tcp_timestamps": "1",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.ip_forward": "1",
    "net.core.rmem_default": "212992",
    "fs.file-max": "9223372036854775807",
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "1048576",
    "fs.nr_open": "1048576",
    "kernel.pid_max": "4194304",
    "vm.max_map_count": "65530",
    "net.core.netdev_max_backlog": "1000",
    "net.core.rmem_max": "212992",
    "net.core.wmem_max": "212992",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.conf.all.arp_ignore": "0",
    "net.ipv4.conf.all.arp_announce": "0",
}


def nic(name: str, *ipv4: str, **told: Any) -> dict[str, Any]:
    """An interface as machine_facts has it."""
    return {"name": name, "kind": "physical", "up": True, "speed_mbit": None, "ipv4": list(ipv4)} | told


def node(
    speed: int | None = 100_000,
    record: dict[str, Any] | None = None,
    nics: tuple[dict[str, Any], ...] = (),
    **read: Any,
) -> dict[str, Any]:
    """What the role reads from a node: machine_facts and the result of tasks/read.yml, with ``read`` on top."""
    return {
        "machine_facts": {
            "nics": [nic("lo", "127.0.0.1/8", kind="loopback"), nic("eth0", "10.0.0.5/24", speed_mbit=speed), *nics],
            "default_interface": "eth0",
            "memory_mib": 65536,
            "numa": [{"node": 0, "cpus": [0, 1]}, {"node": 1, "cpus": [2, 3]}, {"node": 2, "cpus": []}],
            "hugepages": [{"size_kib": 2048, "total": 0, "node": 0}],
        },
        "ansible_managed": "Ansible managed",
        "ansible_search_path": [str(ROLE)],
        "__host_tuning_node": {
            "record": record or {},
            "files": {"sysctl": "", "modules": "", "tmpfiles": ""},
            "sysctls": KERNEL,
            "later": {},
            "read_only": [],
            "congestion_controls": ["reno", "cubic"],
            "congestion_module": False,
            "unwritable": [],
            **read,
        },
    }


def tuned(**read: Any) -> dict[str, Any]:
    """A node on which the role has done all with its defaults, with ``read`` on top."""
    first = node()
    record, live = on("__host_tuning_new_record", first), KERNEL | wanted(first)
    done = node(record=record, sysctls=live)
    files = on("__host_tuning_texts", done)
    return node(record=record, **({"sysctls": live, "files": files} | read))


def on(expression: str, described: dict[str, Any], **arguments: Any) -> Any:
    return evaluate(ROLE, expression, described | {f"host_tuning_{name}": value for name, value in arguments.items()})


def refusals(described: dict[str, Any], **arguments: Any) -> list[str]:
    found: list[str] = on("__host_tuning_refusals", described, **arguments)
    return found


def wanted(described: dict[str, Any], **arguments: Any) -> dict[str, str]:
    plan = on("__host_tuning_sysctl_plan", described, **arguments)
    return {item["key"]: item["wanted"] for item in plan}
