#!/usr/bin/python
"""Ansible module of the role container_runtime: the limits inside a real container that a user without rights runs."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: container_runtime_proof
short_description: Read the limits that a container gets
description:
  - Has containerd run a container as nobody and reads /proc/self/limits in it. Needs no image, since its root is an
    empty folder with the node's /usr mounted read-only. Leaves nothing behind.
options:
  ctr:
    description: Program and first arguments of containerd's client.
    type: list
    elements: str
    required: true
  socket:
    description: containerd's socket.
    type: str
    required: true
"""

RETURN = r"""
limits:
  description: Text of the container's /proc/self/limits.
  returned: success
  type: str
"""

NOBODY = 65534
SECONDS = 30
TIMED_OUT = 124
"""With which timeout(1) ends when the time is over."""
NAMESPACE = "rankzero-proof"
ROOTS = ("/var/lib/containerd", "/var/lib/rancher/k3s/agent/containerd", "/var/lib/rancher/rke2/agent/containerd")
"""Where containerd keeps its state, beside the folder of its socket."""
TASKS = "io.containerd.runtime.v2.task"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LINKS = ("bin", "lib", "lib64", "sbin")
"""Into /usr on every system that the role supports."""


def bundle(folder: Path) -> dict[str, Any]:
    """The specification of the container whose root is made in ``folder``; without limits, so that it inherits them."""
    root = folder / "root"
    for name in ("dev", "proc", "usr"):
        (root / name).mkdir(parents=True)
    for name in LINKS:
        (root / name).symlink_to(f"usr/{name}")
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": NOBODY, "gid": NOBODY},
            "args": ["/usr/bin/cat", "/proc/self/limits"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
        ],
        "linux": {"namespaces": [{"type": name} for name in ("pid", "mount", "ipc", "uts", "network")]},
    }


def limited(module: AnsibleModule, command: list[str]) -> tuple[int, str, str]:
    """Run a command that may hang, as one does that waits for a shim."""
    status, said, errors = module.run_command(["timeout", "--kill-after=5", str(SECONDS), *command])
    return status, said, errors


def prove(module: AnsibleModule, folder: Path) -> str:
    """The container's limits. Ends the module where there is no container."""
    program, *words = module.params["ctr"]
    path = shutil.which(program, path=PATH)
    if path is None:
        module.fail_json(msg=f"{program} is not installed, so no container can be run to read its limits.")
    specification = folder / "config.json"
    specification.write_text(json.dumps(bundle(folder)), encoding="utf-8")
    client = [path, *words, "--address", module.params["socket"]]
    name = f"proof-{uuid.uuid4().hex[:8]}"
    status, said, errors = limited(
        module, [*client, "--namespace", NAMESPACE, "run", "--rm", "--config", str(specification), name]
    )
    if status == TIMED_OUT:
        errors = f"it had not ended after {SECONDS} seconds"
        limited(module, [*client, "--namespace", NAMESPACE, "tasks", "delete", "--force", name])
        limited(module, [*client, "--namespace", NAMESPACE, "containers", "delete", name])
    limited(module, [*client, "namespaces", "remove", NAMESPACE])
    # containerd keeps an empty folder for each namespace that ever had a container.
    for left in (Path(root, TASKS, NAMESPACE) for root in (*ROOTS, Path(module.params["socket"]).parent)):
        if left.is_dir() and not any(left.iterdir()):
            left.rmdir()
    if status != 0 or "Max open files" not in said:
        module.fail_json(msg=f"containerd does not run a container: {' '.join((errors or said).split())[-400:]}")
    return str(said)


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "ctr": {"type": "list", "elements": "str", "required": True},
            "socket": {"type": "str", "required": True},
        },
    )
    # Not below /tmp, which is noexec or private to services on some systems.
    with tempfile.TemporaryDirectory(prefix="rankzero-proof-", dir="/run") as folder:
        # The container's user has to get through.
        Path(folder).chmod(0o755)
        limits = prove(module, Path(folder))
    module.exit_json(changed=False, limits=limits)


if __name__ == "__main__":
    main()
