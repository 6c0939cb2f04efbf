"""Makes a cluster of the nodes: `kubeadm init` on the first, `kubeadm join` on the others."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from scripts.lab import images, programs
from scripts.lab.podman import execute
from scripts.lab.settings import API_PORT, CONTROL, NAME, PODS, SERVICES, Node

API_VERSION = "kubeadm.k8s.io/v1beta4"
CONFIG_FILE = "/etc/rankzero-lab-kubeadm.yaml"
DONE_FILE = "/etc/rankzero-lab-kubeadm.done"
"""Written last: a node without it was left half-way and is made anew."""
LOG = "kubeadm.log"


def is_done(node: Node) -> bool:
    """Whether init or join ran to its end on this node."""
    # Not `test -e`: a podman that fails must not look like a file that is missing.
    return DONE_FILE.rpartition("/")[2] in execute(node.name, "ls", "/etc").split()


def init() -> None:
    """Start the control plane on a fresh node."""
    execute(CONTROL.name, "tee", CONFIG_FILE, stdin=init_config())
    execute(CONTROL.name, "kubeadm", "init", "--config", CONFIG_FILE, log=LOG)
    execute(CONTROL.name, "touch", DONE_FILE)


def join(node: Node) -> None:
    """Add a fresh node as a worker."""
    # kubeadm join ADDRESS --token TOKEN --discovery-token-ca-cert-hash HASH
    line = shlex.split(execute(CONTROL.name, "kubeadm", "token", "create", "--ttl", "15m", "--print-join-command"))
    token, ca_hash = (line[line.index(flag) + 1] for flag in ("--token", "--discovery-token-ca-cert-hash"))
    execute(node.name, "tee", CONFIG_FILE, stdin=join_config(node, token, ca_hash))
    execute(node.name, "kubeadm", "join", "--config", CONFIG_FILE, log=LOG)
    execute(node.name, "touch", DONE_FILE)


def init_config() -> str:
    """kubeadm's configuration of the whole cluster, as YAML."""
    gate = {"name": "feature-gates", "value": "GenericWorkload=true"}
    cluster = {
        "apiVersion": API_VERSION,
        "kind": "ClusterConfiguration",
        "clusterName": NAME,
        "kubernetesVersion": programs.kubernetes_version(),
        "controlPlaneEndpoint": f"{CONTROL.address}:{API_PORT}",
        # No podSubnet: each node's share is fixed (settings.py), not handed out in the order of joining.
        "networking": {"serviceSubnet": SERVICES},
        "dns": {"imageTag": images.coredns_tag()},
        "etcd": {"local": {"imageTag": images.etcd_tag()}},
        "apiServer": {
            "certSANs": ["127.0.0.1", "localhost"],
            # Gang scheduling of Kubernetes' own (PodGroup).
            "extraArgs": [gate, {"name": "runtime-config", "value": "scheduling.k8s.io/v1beta1=true"}],
        },
        "controllerManager": {"extraArgs": [gate]},
        "scheduler": {"extraArgs": [gate]},
    }
    init_section = {
        "apiVersion": API_VERSION,
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": CONTROL.address, "bindPort": API_PORT},
        "nodeRegistration": _registration(CONTROL),
    }
    return yaml.safe_dump_all([init_section, cluster, _kubelet(), _kube_proxy()], sort_keys=False)


def join_config(node: Node, token: str, ca_hash: str) -> str:
    """kubeadm's configuration of one worker, as YAML."""
    endpoint = f"{CONTROL.address}:{API_PORT}"
    section = {
        "apiVersion": API_VERSION,
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {"apiServerEndpoint": endpoint, "token": token, "caCertHashes": [ca_hash]},
        },
        "nodeRegistration": _registration(node),
    }
    return yaml.safe_dump(section, sort_keys=False)


def _registration(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "criSocket": "unix:///run/containerd/containerd.sock",
        "kubeletExtraArgs": [{"name": "node-ip", "value": node.address}],
        # Written for a whole machine: in a container several cannot pass (kernel config, swap, bridge settings).
        "ignorePreflightErrors": ["all"],
    }


def _kubelet() -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Root may lack CAP_SYS_RESOURCE: scores below 0 and some sysctls are then refused.
        "oomScoreAdj": 0,
        "featureGates": {"KubeletInUserNamespace": True},
        # The disk is the whole machine's, and how full that is says nothing about the cluster.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    }


def _kube_proxy() -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": PODS,
        "oomScoreAdj": 0,
        # These sysctls belong to the machine, so leave them alone.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
