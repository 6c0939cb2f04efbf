"""What must stand before an experiment can be installed: on this machine all of it, elsewhere nothing of ours."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client

from rankzero.cluster.api import TIMEOUT, connect, readable
from rankzero.errors import ClusterError, ConfigError
from scripts import command
from scripts.cache import REPO, cache_dir
from scripts.image.reference import check_tag, split
from scripts.lab import cluster, kube, nodes, programs, trainer_image
from scripts.stages import Stages

NODES_NEEDED = 2


@dataclass(frozen=True)
class Ground:
    """A cluster that is ready, and what to install on it."""

    kubeconfig: str | None
    """None means the current one."""
    helm: Path
    image: str
    gpus_per_pod: int
    """GPUs to book: on the local cluster they are advertised, not real, so that accounting can be seen."""
    shared: Path | None
    """Folder of this machine with the shared volume, where there is one."""


def local(stages: Stages, image: str) -> Ground:
    """Build what is missing of the local cluster, prepare its nodes, build and push the image."""
    if image:
        raise ConfigError("IMAGE is for CLUSTER=existing", hint="the local demo builds its own image; leave IMAGE out")
    cluster.up(stages)
    prepare_nodes(stages)
    reference = trainer_image.provide(stages)
    return Ground(
        kubeconfig=str(kube.kubeconfig_path()),
        helm=programs.program("helm", "helm"),
        image=reference,
        gpus_per_pod=2,
        shared=nodes.shared_dir(),
    )


def prepare_nodes(stages: Stages) -> None:
    """Run the playbook on the local cluster's workers, as on real machines but through podman instead of SSH."""
    from scripts.lab import gpus
    from scripts.lab.host import podman_env

    with stages("Preparing the nodes (ansible-playbook)"):
        command.run(
            [Path(REPO, ".venv/bin/ansible-playbook"), "-i", "playbooks/inventory/lab.yml", "playbooks/site.yml"],
            cwd=REPO,
            env={**podman_env(), "RANKZERO_KUBECONFIG": str(kube.kubeconfig_path())},
            log=cache_dir("logs") / "ansible-site.log",
        )
        gpus.advertise()  # a kubelet that was restarted has forgotten them


def existing(stages: Stages, image: str) -> Ground:
    """Check the current cluster. Raises RankzeroError with one sentence for the first thing that is missing."""
    if not image:
        raise ConfigError(
            "CLUSTER=existing needs IMAGE, an image of the trainer that the cluster's nodes can pull",
            hint="build and push one (docs/image.md), then: make demo CLUSTER=existing IMAGE=REGISTRY/trainer:TAG",
        )
    _, tag, digest = split(image)
    if not digest:
        check_tag(tag)
    helm = shutil.which("helm")
    if helm is None:
        raise ConfigError(
            "helm is not on the PATH", hint="install Helm 4, which is tested; 3.14 or newer is expected to do"
        )
    with stages("Checking the cluster"):
        api = connect()
        with readable("the list of nodes"):
            found: list[Any] = client.CoreV1Api(api).list_node(_request_timeout=TIMEOUT).items
        ready = [node.metadata.name for node in found if _is_usable(node)]
        if len(ready) < NODES_NEEDED:
            raise ClusterError(
                f"the cluster has {len(ready)} ready and schedulable nodes, the demo needs {NODES_NEEDED}",
                hint="one pod runs on each node; uncordon or add one",
            )
    return Ground(kubeconfig=None, helm=Path(helm), image=image, gpus_per_pod=0, shared=None)


def _is_usable(node: Any) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or [])
    closed = node.spec.unschedulable or any(t.effect in {"NoSchedule", "NoExecute"} for t in node.spec.taints or [])
    return ready and not closed
