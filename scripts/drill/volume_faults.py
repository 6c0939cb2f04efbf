"""Disturbances of the checkpoint volume of a release on the local cluster."""

from __future__ import annotations

import json
from typing import Any

from scripts.drill.release import CLAIM
from scripts.drill.scene import Scene
from scripts.lab.podman import execute
from scripts.lab.settings import WORKERS, Node

VOLUME_MIB = 64


def make_small_volume(scene: Scene) -> None:
    """A claim on a file system of a few MiB on one node, where the release then runs."""
    node, name = WORKERS[0], scene.release.namespace
    path = f"/srv/{name}"
    execute(node.name, "mkdir", path)
    # Lazily: the namespace with its pods goes at the same time.
    unmount = f"if mountpoint -q {path}; then umount --lazy {path}; fi; rmdir {path}"
    scene.later(lambda: execute(node.name, "sh", "-ec", unmount))
    execute(node.name, "mount", "-t", "tmpfs", "-o", f"size={VOLUME_MIB}m,mode=777", "tmpfs", path)
    scene.later(lambda: scene.release.kubectl("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false"))
    for made in (_volume(name, path, node), _claim(name)):
        scene.release.kubectl("apply", "--filename", "-", stdin=json.dumps(made))


def fill_volume(scene: Scene) -> None:
    """Fill the checkpoint volume until a save has failed, free it, and wait for a save that succeeds."""
    release, pod = scene.release, scene.pod(0)
    release.in_pod(pod, "fill")
    scene.wait_until(
        lambda: "warning: the checkpoint of step" in release.kubectl("logs", pod), what="a save that fails loudly"
    )
    before = release.in_pod(pod, "newest")
    release.in_pod(pod, "free")
    scene.over_now()
    scene.wait_until(lambda: release.in_pod(pod, "newest") > before, what="a save that succeeds")


def _volume(name: str, path: str, node: Node) -> dict[str, Any]:
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": f"{VOLUME_MIB}Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }


def _claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "volumeName": name,
            "resources": {"requests": {"storage": f"{VOLUME_MIB}Mi"}},
        },
    }
