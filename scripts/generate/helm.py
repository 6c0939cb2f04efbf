"""Helm, as the generators and the chart's tests call it: the pinned program, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts import command
from scripts.generate import files
from scripts.lab import programs

NAMESPACE = "research"
"""Any but `default`: a rendering that is right here has no literal namespace in it."""

OPTIONAL_APIS = (
    "kubeflow.org/v1/PyTorchJob",
    "kueue.x-k8s.io/v1beta2/LocalQueue",
    "monitoring.coreos.com/v1/PodMonitor",
    "scheduling.k8s.io/v1beta1/PodGroup",
    "scheduling.volcano.sh/v1beta1/PodGroup",
    "scheduling.x-k8s.io/v1alpha1/PodGroup",
    "trainer.kubeflow.org/v1alpha1/TrainJob",
)
"""What a cluster may serve beyond Kubernetes' own defaults: renderings here are for one that serves all of it."""

NO_CLUSTER = {"KUBECONFIG": "/dev/null"}


def program() -> Path:
    """The pinned helm, built first where that has not happened yet."""
    if not programs.folder("helm").is_dir():
        programs.build("helm")
    return programs.program("helm", "helm")


def helm(*arguments: str | Path) -> str:
    """Run helm and return its standard output; raises :class:`~scripts.command.CommandError` with what it said."""
    return command.run([program(), *arguments], env=NO_CLUSTER)


def template(
    release: str, values: Path, extra: Sequence[str] = (), *, optional_apis: Sequence[str] = OPTIONAL_APIS
) -> str:
    """All objects of a release as YAML documents, for a cluster that serves these optional APIs."""
    apis = [part for api in optional_apis for part in ("--api-versions", api)]
    return helm("template", release, files.CHART, "--namespace", NAMESPACE, "--values", values, *apis, *extra)
