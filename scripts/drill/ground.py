"""Where drills take place: on the local cluster with an image of the present code, or on the one of KUBECONFIG."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rankzero.errors import ClusterError, ConfigError
from scripts.demo import road
from scripts.lab import kube, programs, trainer_image
from scripts.stages import Stages

STRATEGIES = ("ddp", "fsdp")


@dataclass(frozen=True)
class Ground:
    """A cluster that is ready, its programs, and the image under test."""

    kubeconfig: str | None
    """None means the current one."""
    kubectl: Path
    helm: Path
    image: str
    values: tuple[str, ...]
    """Values files that this cluster needs: a storage class, tolerations."""
    is_lab: bool
    strategy: str = STRATEGIES[0]
    """``train.parallel.strategy``: whether all ranks hold the state, or each a part of it."""


def local(stages: Stages, image: str, values: tuple[str, ...]) -> Ground:
    """The local cluster, which has to be up; builds and pushes the image unless one is given."""
    if not kube.kubeconfig_path().exists() or not kube.is_api_ready():
        raise ClusterError("the local cluster is not up", hint="`make lab` builds or repairs it")
    if not image:
        image = trainer_image.provide_on_nodes(stages)
    return Ground(
        kubeconfig=str(kube.kubeconfig_path()),
        kubectl=programs.program("kubernetes", "kubectl"),
        helm=programs.program("helm", "helm"),
        image=image,
        values=values,
        is_lab=True,
    )


def existing(stages: Stages, image: str, values: tuple[str, ...]) -> Ground:
    """The cluster of KUBECONFIG. Raises RankzeroError with one sentence for the first thing that is missing."""
    found = road.existing(stages, image)
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigError("kubectl is not on the PATH", hint="install the version of your cluster")
    return Ground(
        kubeconfig=None, kubectl=Path(kubectl), helm=found.helm, image=found.image, values=values, is_lab=False
    )
