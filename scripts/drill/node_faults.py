"""Disturbances from below: on the machines of the local cluster, which are containers here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rankzero import contract
from rankzero.errors import ClusterError, ConfigError
from scripts.drill.release import CLAIM
from scripts.drill.scene import Scene
from scripts.lab import gpus, kube, nodes
from scripts.lab.host import FAKETIME
from scripts.lab.podman import execute, podman, succeeds
from scripts.lab.settings import WORKERS, Node

CUT_FOR = 10.0
"""Seconds: below launch.heartbeatTimeout."""
DROP = ("-j", "DROP")
TAKEN_PORT = 12999
LISTENER = "drill-listener"
VOLUME_MIB = 64
FAKETIME_FOLDER = "/srv/drill-faketime"
FAKETIME_ENVIRONMENT = {
    "LD_PRELOAD": f"{FAKETIME_FOLDER}/libfaketime.so.1",
    "FAKETIME_TIMESTAMP_FILE": f"{FAKETIME_FOLDER}/offset",
    "FAKETIME_CACHE_DURATION": "1",
    "DONT_FAKE_MONOTONIC": "1",
}


def node_of(scene: Scene, rank: int) -> Node:
    """The machine that a pod runs on."""
    name = scene.node_of(rank)
    return next(node for node in WORKERS if node.name == name)


def process_of(scene: Scene, rank: int) -> tuple[Node, str]:
    """The machine of a pod, and the pid of the pod's PID 1 on it."""
    node = node_of(scene, rank)
    labels = {"io.kubernetes.pod.namespace": scene.release.namespace, "io.kubernetes.pod.name": scene.pod(rank)}
    filters = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    found = execute(node.name, "crictl", "ps", "--quiet", *filters).split()
    if len(found) != 1:
        raise ClusterError(f"{node.name} runs {len(found)} containers of {scene.pod(rank)}", hint="look with crictl ps")
    described: dict[str, Any] = json.loads(execute(node.name, "crictl", "inspect", found[0]))
    return node, str(described["info"]["pid"])


def kill_launcher(rank: int) -> Callable[[Scene], None]:
    """SIGKILL to PID 1 of a pod, which only its node can send; the container ends and is started again."""

    def strike(scene: Scene) -> None:
        node, pid = process_of(scene, rank)
        scene.strike_now()
        execute(node.name, "kill", "-KILL", pid)

    return strike


def cut_network(rank: int, seconds: float | None) -> Callable[[Scene], None]:
    """Drop every packet to and from a pod, for some seconds or (None) for good."""

    def strike(scene: Scene) -> None:
        node, pid = process_of(scene, rank)
        scene.strike_now()
        _each_direction(node, pid, "-I")
        if seconds is None:
            return
        mend = scene.later(lambda: _each_direction(node, pid, "-D"))
        time.sleep(seconds)
        mend()
        scene.over_now()

    return strike


def stop_node(scene: Scene) -> None:
    """The machine of pod 1 loses power, and comes back when its pod counts as lost."""
    node = node_of(scene, 1)
    bring_back = scene.later(lambda: _bring_back(node))
    podman("stop", "--time", "0", node.name)
    scene.wait_until(lambda: scene.group().get("absent") == [1], what="the pod of the stopped node to be missed")
    scene.over_now()
    bring_back()


def occupy_port(scene: Scene) -> None:
    """Another program listens on the release's rendezvous port on every node, before the release is there."""
    for node in WORKERS:
        scene.later(partial(_stop_listening, node))
        listen = ("python3", "-m", "http.server", str(TAKEN_PORT))
        execute(node.name, "systemd-run", "--quiet", "--collect", "--unit", LISTENER, *listen)


def free_port(scene: Scene) -> None:
    """When pod 0 has said what is in its way, and ended, the other program goes."""
    said = f"the rendezvous port {TAKEN_PORT} cannot be used: "
    template = "{.status.containerStatuses[0].lastState.terminated}"

    def has_said() -> bool:
        ended = scene.release.kubectl("get", "pod", scene.pod(0), "--output", f"jsonpath={template}")
        return said in ended and f'"exitCode":{contract.EXIT_PREFLIGHT}' in ended

    scene.wait_until(has_said, what=f"pod 0 to end with status {contract.EXIT_PREFLIGHT} and {said!r}")
    for node in WORKERS:
        _stop_listening(node)
    scene.over_now()


def make_small_volume(scene: Scene) -> None:
    """A claim on a file system of a few MiB on one node, where the release then runs."""
    node, name = WORKERS[0], scene.release.namespace
    path = f"/srv/{name}"
    execute(node.name, "mkdir", path)
    execute(node.name, "mount", "-t", "tmpfs", "-o", f"size={VOLUME_MIB}m,mode=777", "tmpfs", path)
    # Lazily: the namespace with its pods goes at the same time.
    scene.later(lambda: execute(node.name, "umount", "--lazy", path))
    scene.later(lambda: scene.release.kubectl("delete", "persistentvolume", name, "--wait=false"))
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


def bring_faketime(scene: Scene) -> None:
    """Put a library on every node that can shift the wall clock, not the monotonic one, of what preloads it."""
    if not FAKETIME.exists():
        raise ConfigError(f"{FAKETIME} is missing", hint="apt-get install libfaketime")
    for node in WORKERS:
        scene.later(partial(execute, node.name, "rm", "-rf", FAKETIME_FOLDER))
        execute(node.name, "mkdir", "-p", FAKETIME_FOLDER)
        podman("cp", FAKETIME, f"{node.name}:{FAKETIME_FOLDER}/libfaketime.so.1")
        _set_clock(node, "+0")


def step_clock(rank: int, seconds: int) -> Callable[[Scene], None]:
    """Step the wall clock of all processes of a pod, as a time server may do to a node."""

    def ahead(scene: Scene) -> float:
        return float(scene.release.kubectl("exec", scene.pod(rank), "--", "date", "+%s")) - time.time()

    def strike(scene: Scene) -> None:
        _set_clock(node_of(scene, rank), f"+{seconds}")
        scene.wait_until(lambda: ahead(scene) > seconds / 2, what=f"the clock of {scene.pod(rank)} to be stepped")

    return strike


def _set_clock(node: Node, offset: str) -> None:
    execute(node.name, "tee", f"{FAKETIME_FOLDER}/offset", stdin=f"{offset}\n")


def _stop_listening(node: Node) -> None:
    if succeeds("exec", node.name, "systemctl", "is-active", LISTENER):
        execute(node.name, "systemctl", "stop", LISTENER)


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


def _each_direction(node: Node, pid: str, action: str) -> None:
    for chain in ("INPUT", "OUTPUT"):
        execute(node.name, "nsenter", "--target", pid, "--net", "iptables", action, chain, *DROP)


def _bring_back(node: Node) -> None:
    nodes.start(node)
    kube.wait_for_kubelet(node)
    gpus.advertise()  # a kubelet that was restarted has forgotten them
