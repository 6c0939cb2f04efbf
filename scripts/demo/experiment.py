"""The demo's release: installed anew each time, with a run of its own on the same claim."""

from __future__ import annotations

import time

from rankzero.cluster.run import Run
from rankzero.errors import ClusterError
from scripts import command
from scripts.cache import REPO
from scripts.demo.road import Ground
from scripts.image.reference import split

RELEASE = "mnist"
NAMESPACE = "rankzero-demo"
VALUES = "experiments/mnist.yaml"
UNINSTALL = f"helm uninstall {RELEASE} --namespace {NAMESPACE}"
DELETE_AT = 0.4
"""Share of the run after which a pod is deleted."""
LEAST_ACCURACY = 0.965
GONE_WITHIN = 120.0
POLL = 0.5


def new_run_id() -> str:
    """Names this run by its time, so that it starts at step 0 beside earlier ones."""
    return time.strftime("demo-%Y%m%d-%H%M%S")


def uninstall(ground: Ground, run: Run) -> None:
    """Remove an earlier demo; its claim and checkpoints stay. Returns when its pods are gone.

    Raises :class:`ClusterError` where they stay: two runs at once would share names and GPUs.
    """
    _helm(ground, "uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", f"{GONE_WITHIN:.0f}s")
    deadline = time.monotonic() + GONE_WITHIN
    while pods := run.pods():
        if time.monotonic() > deadline:
            names = [pod.name for pod in pods]
            raise ClusterError(
                f"pods of an earlier demo are still there {GONE_WITHIN:.0f} s after its removal: {', '.join(names)}",
                hint=f"is their node gone? `kubectl --namespace {NAMESPACE} delete pod --force {' '.join(names)}`",
            )
        time.sleep(POLL)


def install(ground: Ground, run_id: str) -> None:
    """``helm install``, as a person would type it."""
    repository, tag, digest = split(ground.image)
    settings = [
        f"image.repository={repository}",
        f"image.tag={tag}",
        f"image.digest={digest}",
        f"run.id={run_id}",
        f"resources.gpus={ground.gpus_per_pod}",
    ]
    options = [word for setting in settings for word in ("--set-string" if "image" in setting else "--set", setting)]
    _helm(ground, "install", RELEASE, "charts/rankzero", "--create-namespace", "--values", VALUES, *options)


def _helm(ground: Ground, *words: str) -> None:
    where = ["--kubeconfig", ground.kubeconfig] if ground.kubeconfig else []
    command.run([ground.helm, *words, "--namespace", NAMESPACE, *where], cwd=REPO)
