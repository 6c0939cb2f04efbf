"""Disturbances from below: on the machines of the local cluster, which are containers here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rankzero import contract
from rankzero.errors import ClusterError, ConfigError
from scripts.drill.scene import Scene
from scripts.lab import gpus, kube, nodes
from scripts.lab.host import FAKETIME
from scripts.lab.podman import execute, podman, succeeds
from scripts.lab.settings import WORKERS, Node

CUT_FOR = 10.0
"""Seconds: below launch.heartbeatTimeout."""
DROP = ("-j", "DROP")
TO_AND_FROM_OTHERS = (("INPUT", "-i", "eth0", *DROP), ("OUTPUT", "-o", "eth0", *DROP))
"""Rules of iptables for a pod or a machine; what a process says to itself (lo) is left alone."""
THROUGH_THE_NODE = (("FORWARD", "-i", "eth0", *DROP), ("FORWARD", "-o", "eth0", *DROP))
"""What the pods on a machine say to others."""
MISSES_RANK_0 = "lost rank 0; workers are stopped"
NOT_READY_WITHIN = 120.0
TERMINATING_FOR = 10.0
"""Seconds, both; a StatefulSet makes the next pod within one or two."""
TAKEN_PORT = 12999
LISTENER = "drill-listener"
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
    for node in WORKERS:
        if node.name == name:
            return node
    raise ClusterError(f"{scene.pod(rank)} runs on {name}, which is no worker of the local cluster")


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
    """Drop every packet between a pod and the others, for some seconds or (None) for good."""

    def strike(scene: Scene) -> None:
        if scene.release.kubectl("get", "pod", scene.pod(rank), "--output", "jsonpath={.spec.hostNetwork}") == "true":
            raise ConfigError(
                f"{scene.pod(rank)} is on the network of its node, which would be cut off as a whole",
                hint="leave network.hostNetwork at its default in this drill",
            )
        node, pid = process_of(scene, rank)
        inside = ("nsenter", "--target", pid, "--net")

        def mend() -> None:
            if succeeds("exec", node.name, *inside, "iptables", "-C", *TO_AND_FROM_OTHERS[0]):
                _each_direction(node, "-D", *inside)

        mend_now = scene.later(mend)  # with the pod its rules are gone too
        scene.strike_now()
        _each_direction(node, "-I", *inside)
        if seconds is None:
            return
        time.sleep(seconds)
        mend_now()
        scene.over_now()

    return strike


def restart_node(rank: int) -> Callable[[Scene], None]:
    """Stop the machine of a pod at once and start it again. Its kernel lives on and closes the connections."""

    def strike(scene: Scene) -> None:
        bring_back = _stop(scene, rank)
        _wait_until_missed(scene, rank)
        scene.over_now()
        bring_back()

    return strike


def cut_power(rank: int) -> Callable[[Scene], None]:
    """As when the machine of a pod loses power: it falls silent without a word, and comes back with the same pod."""

    def strike(scene: Scene) -> None:
        bring_back = _stop(scene, rank, silently=True)
        _wait_until_missed(scene, rank)
        scene.over_now()
        bring_back()

    return strike


def take_node_away(rank: int) -> Callable[[Scene], None]:
    """The machine of a pod stays away until its node is NotReady and its pod was deleted, as the cluster does later.

    Nobody can confirm the end of that pod, so it stays Terminating and the StatefulSet makes no other: that is
    demanded here. It ends when the machine is back.
    """

    def strike(scene: Scene) -> None:
        node = node_of(scene, rank)
        bring_back = _stop(scene, rank, silently=True)
        ready = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        scene.wait_until(
            lambda: scene.release.kubectl("get", "node", node.name, "--output", ready) == "Unknown",
            what=f"{node.name} to be NotReady",
            within=NOT_READY_WITHIN,
        )
        scene.release.kubectl("delete", "pod", scene.pod(rank), "--wait=false")
        time.sleep(TERMINATING_FOR)
        left = scene.release.kubectl(
            "get", "pod", scene.pod(rank), "--output", "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}"
        ).split()
        if len(left) != 2 or left[0] != scene.before[rank].uid:
            raise ClusterError(
                f"{scene.pod(rank)} of a machine that is away did not stay Terminating",
                hint="then the drill does not show what it is for",
            )
        scene.over_now()
        bring_back()

    return strike


def _stop(scene: Scene, rank: int, *, silently: bool = False) -> Callable[[], None]:
    """Stop the machine of a pod; ``silently`` nothing that its kernel still says is heard. Returns what undoes it."""
    node = node_of(scene, rank)
    bring_back = scene.later(lambda: _bring_back(node))
    scene.strike_now()
    if silently:
        for rule in (*TO_AND_FROM_OTHERS, *THROUGH_THE_NODE):
            execute(node.name, "iptables", "-I", *rule)  # they are gone when it is started again
    podman("stop", "--time", "0", node.name)
    return bring_back


def _wait_until_missed(scene: Scene, rank: int) -> None:
    """Rank 0 says which pod it misses; rank 0 itself is missed by the other."""

    def is_missed() -> bool:
        if rank:
            return bool(scene.group().get("absent") == [rank])
        return MISSES_RANK_0 in scene.release.kubectl("logs", scene.pod(1))

    scene.wait_until(is_missed, what=f"{scene.pod(rank)} of the stopped machine to be missed")


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
    replace = f"cat > {FAKETIME_FOLDER}/.offset && mv {FAKETIME_FOLDER}/.offset {FAKETIME_FOLDER}/offset"
    execute(node.name, "sh", "-ec", replace, stdin=f"{offset}\n")  # whole, since processes read it all the time


def _stop_listening(node: Node) -> None:
    if succeeds("exec", node.name, "systemctl", "is-active", LISTENER):
        execute(node.name, "systemctl", "stop", LISTENER)


def _each_direction(node: Node, action: str, *inside: str) -> None:
    for rule in TO_AND_FROM_OTHERS:
        execute(node.name, *inside, "iptables", action, *rule)


def _bring_back(node: Node) -> None:
    nodes.start(node)
    kube.wait_for_kubelet(node)
    gpus.advertise()  # a kubelet that was restarted has forgotten them
