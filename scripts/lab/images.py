"""The images that the cluster itself runs, made from the built programs and put into the registry.

Each is one static program on an empty file system; kube-proxy, which calls iptables, stands on the node image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from scripts import command
from scripts.cache import cache_dir
from scripts.lab import programs, registry
from scripts.lab.host import podman_env
from scripts.lab.node_image import node_image
from scripts.lab.podman import podman
from scripts.lab.settings import IMAGES, NAME, registry_host

MIRROR = "registry.k8s.io"
"""Nodes ask the lab's registry for this one's images, below a path of this name."""
CATATONIT = Path("/usr/bin/catatonit")
EMPTY = "scratch"
WORKING_CONTAINER = f"{NAME}-build-"
"""buildah's containers in which the images are put together, before the program's name."""


@dataclass(frozen=True)
class Image:
    """One program as a container image."""

    reference: str
    """In the lab's registry."""
    program: Path
    name: str
    """The file's name in the image, found on its PATH."""
    arguments: tuple[str, ...] = ()
    base: str = EMPTY
    packages: tuple[str, ...] = ()
    """Debian packages that the base may lack."""


def cluster_images() -> list[Image]:
    """Everything that `kubeadm config images list` names, and the volume provisioner."""
    version = programs.kubernetes_version()
    node = node_image()
    control_plane = [
        Image(_mirrored(f"{name}:{version}"), programs.program("kubernetes", name), name)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    return [
        *control_plane,
        Image(
            _mirrored(f"kube-proxy:{version}"), programs.program("kubernetes", "kube-proxy"), "kube-proxy", base=node
        ),
        Image(_mirrored(f"etcd:{etcd_tag()}"), programs.program("etcd", "server"), "etcd"),
        Image(_mirrored(f"coredns/coredns:{coredns_tag()}"), programs.program("coredns", "coredns"), "coredns"),
        Image(_mirrored(f"pause:{PAUSE_TAG}"), CATATONIT, "catatonit", ("-P",)),
        Image(
            provisioner_reference(),
            programs.program("local-path-provisioner", "local-path-provisioner"),
            "local-path-provisioner",
        ),
    ]


PAUSE_TAG = "3.10.2"
"""The tag that this kubeadm expects; containerd's configuration names it too."""


def etcd_tag() -> str:
    """kubeadm is told this tag, so that the running etcd is called what it is."""
    return programs.module_version("etcd", "go.etcd.io/etcd/server/v3").removeprefix("v")


def coredns_tag() -> str:
    """kubeadm is told this tag too."""
    return programs.module_version("coredns", "github.com/coredns/coredns")


def provisioner_reference() -> str:
    """The volume provisioner's image."""
    version = programs.module_version("local-path-provisioner", "github.com/rancher/local-path-provisioner")
    return f"{registry_host()}/{NAME}/local-path-provisioner:{version}"


def toolbox_reference() -> str:
    """The node image in the registry: a shell, Python and the network tools, for helper and test pods."""
    return f"{registry_host()}/{NAME}/node:{node_image().rpartition(':')[2]}"


def push_missing() -> list[str]:
    """Build and push what the registry lacks; returns the references."""
    pushed = []
    remove_unfinished()
    if not registry.has_image(toolbox_reference()):
        pushed.append(registry.push(node_image(), toolbox_reference()))
    for image in cluster_images():
        if provide(image):
            pushed.append(image.reference)
    return pushed


def provide(image: Image) -> bool:
    """Have the image in the registry; whether it had to be built. The caller holds the cluster's lock."""
    if registry.has_image(image.reference):
        return False
    _build_and_push(image)
    return True


def remove_unfinished() -> None:
    """Remove the working containers of builds that were killed."""
    listed = command.run(["buildah", "containers", "--format", "{{.ContainerName}}"], env=podman_env()).split()
    for container in listed:
        if container.startswith(WORKING_CONTAINER):
            _buildah("rm", container)


def _buildah(*words: str | Path) -> None:
    command.run(["buildah", *words], env=podman_env(), log=cache_dir("logs") / "images.log")


def _build_and_push(image: Image) -> None:
    local = f"{IMAGES}/build/{image.name}"
    container = f"{WORKING_CONTAINER}{image.name}"
    entrypoint = json.dumps([image.name, *image.arguments])
    _buildah("from", "--name", container, "--pull-never", image.base)
    try:
        if image.packages:
            for words in (("update",), ("install", "--yes", "--no-install-recommends", *image.packages)):
                _buildah("run", "--network", "host", container, "--", "apt-get", "--quiet", *words)
        _buildah("copy", "--chmod", "0755", container, image.program, f"/usr/local/bin/{image.name}")
        _buildah("config", "--entrypoint", entrypoint, "--cmd", "", container)
        _buildah("config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        _buildah("commit", container, local)
    finally:
        _buildah("rm", container)
    try:
        registry.push(local, image.reference)
    finally:
        podman("rmi", local)


def _mirrored(path: str) -> str:
    return f"{registry_host()}/{MIRROR}/{path}"
