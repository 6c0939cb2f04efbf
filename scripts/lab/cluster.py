"""The whole cluster: brought up or repaired, described, and removed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from rankzero.errors import ConfigError, RankzeroError
from scripts.cache import cache_dir
from scripts.lab import gpus, host, images, kernel, kube, kubeadm, lock, node_image, nodes, programs, registry, storage
from scripts.lab.kube import kubectl
from scripts.lab.podman import (
    containers,
    killed,
    local_images,
    podman,
    remove_containers,
    remove_images,
    remove_volumes,
)
from scripts.lab.settings import (
    CONTROL,
    GPUS_PER_WORKER,
    LABEL,
    LABEL_CACHE,
    LABEL_SPEC,
    NODES,
    STORAGE_CLASS,
    WORKERS,
    Node,
    registry_host,
)
from scripts.stages import Stages


def up(stages: Stages) -> None:
    """Bring the cluster up from whatever state it is in; a running one is only checked."""
    check_host()
    with only_one(stages):
        refuse_another_caches_cluster(containers())
        _remove_killed(stages)
        build_programs(stages)
        with stages("Node image"):
            node_image.build_node_image()
        with stages("Registry"):
            nodes.ensure_network()
            registry.ensure_registry(node_image.node_image())
            nodes.write_registry_files()
        with stages("Cluster images"):
            images.push_missing()
        with stages("Control plane"):
            _keep_kernel_settings()
            _ensure_control_plane(stages)
        for node in WORKERS:
            with stages(node.name):
                _ensure_worker(node, stages)
        with stages("GPUs, storage, DNS"):
            gpus.advertise()
            storage.install()
            kubectl("--namespace", "kube-system", "rollout", "status", "deployment/coredns", "--timeout", "120s")
        _remove_old_images(stages)
    stages.console.print(
        f"The cluster is up: {len(NODES)} nodes, {GPUS_PER_WORKER} advertised GPUs a worker, "
        f"storage class {STORAGE_CLASS}, images through {registry_host()}.\n"
        f"  export KUBECONFIG={kube.kubeconfig_path()}\n"
        f"  disk: {_free_gigabytes():.0f} GB free"
    )


def down(stages: Stages) -> None:
    """Remove every container, volume, network, image and file of the lab; the built programs stay."""
    _refuse(host.removal_problems())
    with only_one(stages):
        refuse_another_caches_cluster(containers())
        before = _free_gigabytes()
        with stages("Removing the cluster"):
            remove_containers(*containers())
            images.remove_unfinished()
            remove_volumes(*podman("volume", "ls", "--quiet", "--filter", f"label={LABEL}").split())
            for network in podman("network", "ls", "--quiet", "--filter", f"label={LABEL}").split():
                podman("network", "rm", network)
            _remove_images(stages, local_images())
            if refused := kernel.put_back():
                stages.console.print(f"Kernel settings that could not be put back: {', '.join(refused)}.")
            shutil.rmtree(cache_dir("lab"))
        stages.console.print(
            f"Removed the cluster, its volumes and its registry: {_free_gigabytes() - before:.1f} GB freed. "
            f"The built programs stay in {cache_dir('programs')}."
        )


def status() -> str:
    """What is there, in a few lines for a person."""
    present = containers()
    refuse_another_caches_cluster(present)
    if not present:
        return "The cluster is not there; `make lab` builds it."
    lines = [f"{name:<24} {one['State']}" for name, one in sorted(present.items())]
    if kube.kubeconfig_path().exists() and kube.is_api_ready():
        lines += ["", kubectl("get", "nodes").rstrip(), ""]
        lines += [f"{name}: {count} GPUs allocatable" for name, count in gpus.advertised().items()]
        lines += ["", f"Images in {registry_host()}:", *(f"  {name}" for name in registry.catalog())]
    else:
        lines += ["The API server does not answer; `make lab` repairs the cluster."]
    return "\n".join(lines)


def check_host() -> None:
    """Raises :class:`RankzeroError` with all that this machine lacks."""
    problems = host.machine_problems()
    if missing := host.missing_apt_packages():
        problems.append(f"Debian packages are missing: {' '.join(missing)}.")
    _refuse(problems)


def refuse_another_caches_cluster(present: dict[str, dict[str, Any]]) -> None:
    """Raise where ``present`` (from :func:`containers`) mounts files of another cache folder than this process's."""
    own = str(cache_dir())
    for one in present.values():
        owner = one["Labels"].get(LABEL_CACHE, own)
        if owner != own:
            raise ConfigError(
                f"this machine has a cluster already, made from the cache folder {owner} (here it is {own})",
                hint=f"use that one by setting RANKZERO_CACHE={owner}, or remove it first: "
                f"make lab-down RANKZERO_CACHE={owner}",
            )


def build_node_image(stages: Stages, suite: str = node_image.SUITE) -> str:
    """Build the node image alone, of a suite of Debian, and return its reference."""
    _refuse(host.root_problems())
    with only_one(stages), stages(f"Node image ({suite})"):
        node_image.build_node_image(suite)
    return node_image.node_image(suite)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise RankzeroError(
            "\n  - ".join(["this machine cannot run the local cluster:", *problems]),
            hint="`make bootstrap` installs what can be installed",
        )


def build_programs(stages: Stages, families: Sequence[str] = ()) -> None:
    """Compile what is missing of the pinned programs (of all, or of ``families``), one stage each."""
    if unknown := set(families) - set(programs.names()):
        raise ConfigError(f"no program family {' or '.join(sorted(unknown))}", hint=f"one of {programs.names()}")
    for family in programs.missing():
        if families and family not in families:
            continue
        with stages(f"Compiling {family}"):
            programs.build(family)
    if not programs.missing() and programs.has_build_caches():
        with stages("Freeing the compiler's caches"):
            programs.remove_build_caches()


def _remove_killed(stages: Stages) -> None:
    if names := killed(containers()):
        stages.console.print(f"The processes of {', '.join(names)} were killed: made anew.")
        remove_containers(*names)


def _ensure_control_plane(stages: Stages) -> None:
    spec = nodes.spec_hash(kubeadm.init_config())
    present = containers()
    outdated = [
        node.name for node in NODES if node.name in present and present[node.name]["Labels"][LABEL_SPEC] != spec
    ]
    if outdated:
        stages.console.print("Versions or settings have changed since the cluster was built: all nodes are made anew.")
    elif CONTROL.name in present:
        if present[CONTROL.name]["State"] != "running":
            nodes.start(CONTROL)
        if kubeadm.is_done(CONTROL):
            _report_restarts(CONTROL, stages)
            kube.write_kubeconfig()
            kube.wait_for_api()
            return
        stages.console.print(f"{CONTROL.name} was left half-built: all nodes are made anew.")
    elif any(node.name in present for node in WORKERS):
        stages.console.print(f"{CONTROL.name} is gone, and with it the cluster's state: all nodes are made anew.")
    for node in NODES:
        nodes.remove(node)
    nodes.create(CONTROL, spec)
    kubeadm.init()
    kube.write_kubeconfig()
    kube.wait_for_api()
    _assign_pod_addresses(CONTROL)


def _ensure_worker(node: Node, stages: Stages) -> None:
    present = containers().get(node.name)
    if present and present["State"] != "running":
        nodes.start(node)
    if present and not kubeadm.is_done(node):
        stages.console.print(f"{node.name} was left half-built: it is made anew.")
        present = None
    if present:
        _report_restarts(node, stages)
        try:
            kube.wait_for_kubelet(node)
        except RankzeroError as error:
            stages.console.print(f"{error.message}: it is made anew.")
        else:
            return
    kubectl("delete", "node", node.name, "--ignore-not-found")
    nodes.create(node, nodes.spec_hash(kubeadm.init_config()))
    kubeadm.join(node)
    _assign_pod_addresses(node)
    kube.wait_for_kubelet(node)


def _report_restarts(node: Node, stages: Stages) -> None:
    if dead := nodes.restart_dead_services(node):
        stages.console.print(f"{node.name}: {' and '.join(dead)} did not run and was started.")


def _assign_pod_addresses(node: Node) -> None:
    patch = {"spec": {"podCIDR": node.pods, "podCIDRs": [node.pods]}}
    kubectl("patch", "node", node.name, "--type", "merge", "--patch", json.dumps(patch))


def _keep_kernel_settings() -> None:
    present = containers()
    if not any(node.name in present and present[node.name]["State"] == "running" for node in NODES):
        kernel.keep()


def _remove_old_images(stages: Stages) -> None:
    """Images of earlier recipes; the present two are used by the nodes and by the next build."""
    _remove_images(stages, sorted({*local_images()} - node_image.references()))


def _remove_images(stages: Stages, references: Sequence[str]) -> None:
    for kept in remove_images(*references):
        stages.console.print(f"{kept} stays: a container that is not the lab's stands on it (podman ps --all).")


def _free_gigabytes() -> float:
    return shutil.disk_usage(host.CONTAINERS_ROOT if host.CONTAINERS_ROOT.exists() else "/").free / 1e9


def only_one(stages: Stages) -> AbstractContextManager[None]:
    """Two `make lab` at once would undo each other: the second waits."""
    message = "Another command is at work on the cluster; waiting for it."
    return lock.held(lock.CLUSTER, lambda: stages.console.print(message))
