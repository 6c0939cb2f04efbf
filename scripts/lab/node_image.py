"""The image of a cluster node: a Debian root file system from apt, then the lab's units and settings on top."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from scripts import command
from scripts.cache import cache_dir
from scripts.lab.podman import podman, succeeds
from scripts.lab.settings import IMAGES, LABEL, NAME

SUITE = "bookworm"
"""Debian 12: its systemd 252 still runs where the kernel has cgroup v1. The cluster's nodes are made of it."""
OTHER_SUITES = ("trixie",)
"""Debian 13: for scenarios of roles that have to work there too."""
PACKAGES = (
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "dbus",
    "ethtool",
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "nftables",
    "openssh-server",
    "procps",
    "python3",
    "runc",
    "socat",
    "sudo",
    "systemd",
    "systemd-sysv",
)
"""What a node needs beside the programs built from source; openssh-server, python3 and sudo are for Ansible."""
# mmdebstrap mounts /proc and /sys in the tree that it makes. In namespaces of its own, which end with this process,
# a killed build leaves neither a mount nor a program behind.
DIES_WITH_US = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL"),
)
RECIPE = Path(__file__).parent / "node"


def rootfs_image(suite: str = SUITE) -> str:
    """Reference of the bare root file system; its tag changes with suite and packages."""
    return f"{IMAGES}/rootfs:{_hash(suite.encode(), *(name.encode() for name in PACKAGES))}"


def node_image(suite: str = SUITE) -> str:
    """Reference of the node image; its tag changes with the root file system and with every file of the recipe."""
    files = sorted(path for path in RECIPE.rglob("*") if path.is_file())
    content = [part for path in files for part in (str(path.relative_to(RECIPE)).encode(), path.read_bytes())]
    return f"{IMAGES}/node:{_hash(rootfs_image(suite).encode(), *content)}"


def references() -> set[str]:
    """The images of all suites, whether or not they are there."""
    return {image(suite) for suite in (SUITE, *OTHER_SUITES) for image in (rootfs_image, node_image)}


def build_node_image(suite: str = SUITE) -> None:
    """Build what is missing of the two images; quick when nothing is. The caller holds the cluster's lock."""
    image, rootfs = node_image(suite), rootfs_image(suite)
    if succeeds("image", "exists", image):
        return
    if not succeeds("image", "exists", rootfs):
        _build_rootfs(suite)
    podman(
        "build",
        *("--file", RECIPE / "Containerfile", "--build-arg", f"ROOTFS={rootfs}"),
        *("--label", f"{LABEL}={NAME}", "--tag", image, RECIPE),
        log="node-image.log",
    )


def _build_rootfs(suite: str) -> None:
    for left in cache_dir("lab").glob("rootfs-*"):
        command.run(["rm", "-rf", "--one-file-system", str(left)])
    with tempfile.TemporaryDirectory(prefix="rootfs-", dir=cache_dir("lab")) as folder:
        archive = Path(folder, "rootfs.tar")
        log = cache_dir("logs") / "node-image.log"
        words = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(archive)]
        command.run([*DIES_WITH_US, *words], env={"TMPDIR": folder}, log=log)
        podman("import", "--change", f"LABEL {LABEL}={NAME}", archive, rootfs_image(suite), log=log.name)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]
