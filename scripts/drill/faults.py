"""Disturbances that need kubectl and helm only."""

from __future__ import annotations

from collections.abc import Callable

from rankzero import contract
from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from rankzero.errors import ClusterError
from scripts.demo.follow import Patient
from scripts.drill.release import NAME, RUN_ID
from scripts.drill.scene import Scene

CHANGED_RATE = 0.003
CONNECTIONS = 500
CROWDED_FOR = 6.0
OTHER_RUN_WITHIN = 180.0
"""Seconds, both."""


def signal_worker(rank: int, name: str) -> Callable[[Scene], None]:
    """Send a signal to the training process of one pod."""

    def strike(scene: Scene) -> None:
        scene.release.in_pod(scene.pod(rank), "signal", "worker", name)

    return strike


def kill_torchrun(scene: Scene) -> None:
    """SIGKILL to the torchrun of pod 1."""
    scene.release.in_pod(scene.pod(1), "signal", "torchrun", "SIGKILL")


def delete_pod(rank: int, *options: str) -> Callable[[Scene], None]:
    """``kubectl delete pod``, as an eviction or a person would; does not wait for it."""

    def strike(scene: Scene) -> None:
        scene.release.kubectl("delete", "pod", scene.pod(rank), "--wait=false", *options)

    return strike


def stop_all_pods(scene: Scene) -> None:
    """SIGTERM to PID 1 of every pod at once: all containers end and are started again in place."""
    for rank in (0, 1):
        scene.release.in_pod(scene.pod(rank), "signal", "launcher", "SIGTERM")


def damage_newest_checkpoint(scene: Scene) -> None:
    """Flip a bit in the newest checkpoint, and SIGKILL a worker: a stop that asks to save would write a new one."""
    scene.release.in_pod(scene.pod(1), "damage-newest", "SIGKILL")


def drain_node(scene: Scene) -> None:
    """``kubectl drain`` of pod 1's node, limited to this release's pods; the node is free again afterwards."""
    node = scene.node_of(1)
    uncordon = scene.later(lambda: scene.release.kubectl("uncordon", node))
    selector = f"{contract.LABEL_INSTANCE}={NAME}"
    scene.release.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector", selector)
    scene.over_now()
    uncordon()


def install_another(scene: Scene) -> None:
    """A second release of the same name in another namespace, on the same nodes and with the same values."""
    other = scene.release.twin()
    scene.later(other.remove)
    other.create_namespace()
    other.install()
    run = Patient(Run(connect(other.ground.kubeconfig), other.namespace, NAME), scene.detail)
    scene.wait_until(
        lambda: ((run.status() or {}).get("group", {}).get("progress") or {}).get("step", 0) > 0,
        what="the first step of the other release",
        within=OTHER_RUN_WITHIN,
    )
    state = scene.group().get("state")
    if state != "running":
        raise ClusterError(
            f"the first run is {state} when the second begins", hint="give it more steps: drill.arguments"
        )
    scene.over_now()
    scene.wait_until(lambda: run.outcome(RUN_ID) is not None, what="the end of the other run", within=OTHER_RUN_WITHIN)
    scene.other_results.append((run.outcome(RUN_ID) or {}).get("result", {}))


def change_learning_rate(scene: Scene) -> None:
    """``helm upgrade`` with another learning rate while the run goes on."""
    scene.release.upgrade(f"train.learningRate={CHANGED_RATE}")


def crowd_the_coordinator(scene: Scene) -> None:
    """Many connections to the rendezvous port, from pod 1: half of them silent, half with nonsense."""
    host, port = f"{scene.pod(0)}.{NAME}", str(contract.RENDEZVOUS_PORT)
    scene.release.in_pod(scene.pod(1), "crowd", host, port, str(CONNECTIONS), str(CROWDED_FOR))
    scene.over_now()
