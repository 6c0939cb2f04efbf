"""containerd's files as container_runtime plans them."""

from __future__ import annotations

import tomllib
from typing import Any

from roles.container_runtime.filter_plugins import container_runtime_containerd as containerd

MAIN = "/etc/containerd/config.toml"


OWN = "/etc/containerd/conf.d/zz-rankzero.toml"


BINARY = "/usr/bin/nvidia-container-runtime"


CRI_V2, CRI_V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"


KUBEADM_V2 = f"""# made by `containerd config default`
version = 2
root = "/data/containerd"
imports = []

[plugins]
  [plugins."{CRI_V2}"]
    sandbox_image = "registry.example/pause:3.9"
    [plugins."{CRI_V2}".containerd]
      snapshotter = "stargz"
      default_runtime_name = "runc"
      [plugins."{CRI_V2}".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        pod_annotations = ["io.example/*"]
        [plugins."{CRI_V2}".containerd.runtimes.runc.options]
          SystemdCgroup = true
      [plugins."{CRI_V2}".containerd.runtimes.kata]
        runtime_type = "io.containerd.kata.v2"
    [plugins."{CRI_V2}".registry.mirrors."docker.io"]
      endpoint = ["https://mirror.example"]
[plugins."io.containerd.internal.v1.opt"]
  path = "/opt/containerd"
"""


KUBEADM_V3 = f"""version = 3
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '/etc/containerd/certs.d'
[plugins.'{CRI_V3}'.containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


def config(main: str | None, **others: str) -> dict[str, Any]:
    """What the node has: the main file and, by name, those of conf.d."""
    files = [{"path": MAIN, "text": main}] if main is not None else []
    files += [{"path": f"/etc/containerd/conf.d/{name}.toml", "text": text} for name, text in others.items()]
    return {"path": MAIN, "drop_in": OWN, "files": files}


def plan(
    node: dict[str, Any], version: str = "2.2.1", *, handler: str = "nvidia", default: bool = False, cdi: bool = False
) -> dict[str, Any]:
    wanted = {"handler": handler, "binary": BINARY, "default": default, "cdi": cdi}
    return containerd.plan(node, version, wanted)


def after(node: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The node once the changes are made, its files in containerd's order."""
    texts = {file["path"]: file["text"] for file in node["files"]} | changes["write"]
    kept = [path for path in texts if path not in changes["remove"]]
    order = sorted((path for path in kept if path != MAIN), key=lambda path: path)
    return node | {"files": [{"path": path, "text": texts[path]} for path in [MAIN, *order]]}


def own(changes: dict[str, Any]) -> dict[str, Any]:
    """The content of the role's drop-in."""
    return tomllib.loads(changes["write"][OWN])
