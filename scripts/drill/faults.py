"""Disturbances that need kubectl and helm only."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rankzero import contract
from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from rankzero.errors import ClusterError
from scripts.command import CommandError
from scripts.demo.follow import Patient
from scripts.drill.release import NAME, RUN_ID
from scripts.drill.scene import Scene

CHANGED_RATE = 0.003
OTHER_RUN_WITHIN = 180.0
"""Seconds."""
SAVES_STRUCK = 3
"""Saves at which a worker is killed at most, for one kill to come before the checkpoint was whole."""
REFUSED = "TooManyRequests"
"""What the API says to an eviction that a PodDisruptionBudget forbids."""


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
    with ThreadPoolExecutor() as both:
        list(both.map(lambda rank: scene.release.in_pod(scene.pod(rank), "signal", "launcher", "SIGTERM"), (0, 1)))
    statuses = "jsonpath={.items[*].status.containerStatuses[0].lastState.terminated.exitCode}"
    pods = ("get", "pods", "--selector", f"{contract.LABEL_INSTANCE}={NAME}", "--output", statuses)

    def have_left() -> bool:
        return scene.release.kubectl(*pods).split() == [str(contract.EXIT_REQUEUE)] * 2

    scene.wait_until(have_left, what=f"both containers to have ended with status {contract.EXIT_REQUEUE}")


def evict(scene: Scene, rank: int) -> bool:
    """Ask for the eviction of a pod, as a drain does; False where the PodDisruptionBudget forbids it now."""
    pod, namespace = scene.pod(rank), scene.release.namespace
    asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    try:
        scene.release.kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(asked))
    except CommandError as error:
        if REFUSED in error.message:
            return False
        raise
    return True


def evict_pod(rank: int) -> Callable[[Scene], None]:
    """One eviction, which has to be admitted."""

    def strike(scene: Scene) -> None:
        if not evict(scene, rank):
            raise ClusterError(
                f"the eviction of {scene.pod(rank)} was refused while the group was whole",
                hint=f"look with `kubectl --namespace {scene.release.namespace} get poddisruptionbudgets`",
            )

    return strike


def evict_both_pods(scene: Scene) -> None:
    """Evict pod 1 and at once pod 0, which has to be refused until the group is whole again."""
    evict_pod(1)(scene)
    if evict(scene, 0):
        raise ClusterError(
            f"{scene.pod(0)} was evicted while {scene.pod(1)} was away",
            hint="the release's PodDisruptionBudget should have forbidden it",
        )
    scene.wait_until(lambda: evict(scene, 0), what=f"the eviction of {scene.pod(0)} to be admitted")
    scene.over_now()


def damage_newest_checkpoint(scene: Scene) -> None:
    """Flip a bit in the newest checkpoint, and SIGKILL a worker: a stop that asks to save would write a new one."""
    scene.release.in_pod(scene.pod(1), "damage-newest", "SIGKILL")


def kill_in_save(scene: Scene) -> None:
    """SIGKILL to the worker of pod 1 while a checkpoint is being written, until one has struck before it was whole.

    Raises :class:`ClusterError` where all of ``SAVES_STRUCK`` kills came too late.
    """
    for _ in range(SAVES_STRUCK):
        attempt = scene.group()["attempt"]
        scene.strike_now()
        step = int(scene.release.in_pod(scene.pod(1), "kill-in-save"))
        if _resumed_from(scene, attempt + 1) < step:
            return
    raise ClusterError(
        f"{SAVES_STRUCK} saves were complete when the worker was killed",
        hint="run the drill again, with less beside it",
    )


def _resumed_from(scene: Scene, attempt: int) -> int:
    """The step from which an attempt went on, once it has made one."""

    def found() -> bool:
        progress = scene.group().get("progress") or {}
        return bool(progress.get("attempt") == attempt and "resumed_from" in progress)

    scene.wait_until(found, what=f"the first step of attempt {attempt}")
    return int(scene.group()["progress"]["resumed_from"])


def drain_node(scene: Scene) -> None:
    """``kubectl drain`` of pod 1's node, limited to this release's pods; the node is free again afterwards."""
    node = scene.node_of(1)
    uncordon = scene.later(lambda: scene.release.kubectl("uncordon", node))
    selector = f"{contract.LABEL_INSTANCE}={NAME}"
    scene.release.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector", selector)
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
