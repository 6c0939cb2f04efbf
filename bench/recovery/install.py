"""Puts a form into the cluster: the chart's release, or the objects that a person would write for torchrun."""

from __future__ import annotations

import json
from typing import Any

from bench.recovery.forms import ARGS, NAME, PODS, SCRIPT, TRAIN, Form
from rankzero import contract
from scripts import command
from scripts.cache import REPO
from scripts.image.reference import as_values
from scripts.lab import kube, programs

MEMORY, CPU, VOLUME = "2Gi", "100m", "1Gi"
STATE_DIR = f"{contract.STATE_ROOT}/{NAME}"


def install(form: Form, namespace: str, image: str) -> None:
    """``helm install`` or ``kubectl apply``; returns when the API has taken the objects."""
    if form.rendezvous:
        bundle = {"apiVersion": "v1", "kind": "List", "items": torchrun_objects(form, image)}
        kube.kubectl("--namespace", namespace, "apply", "--filename", "-", stdin=json.dumps(bundle))
        return
    helm, config = programs.program("helm", "helm"), kube.kubeconfig_path()
    command.run(
        [helm, "install", NAME, "charts/rankzero", "--namespace", namespace, "--kubeconfig", config, "-f", "-"],
        cwd=REPO,
        stdin=json.dumps(chart_values(image)),
    )


def chart_values(image: str) -> dict[str, Any]:
    """Values of the chart's release."""
    return {
        "image": as_values(image),
        "nodes": PODS,
        "procsPerNode": 1,
        "launch": {"script": SCRIPT, "args": ARGS},
        "train": TRAIN,
        "resources": {"gpus": 0, "cpu": CPU, "cpuBurst": True, "memory": MEMORY},
        "network": {"env": {"OMP_NUM_THREADS": "1"}},
        "checkpoints": {"size": VOLUME, "keep": False},
    }


def torchrun_objects(form: Form, image: str) -> list[dict[str, Any]]:
    """Service, claim, settings and StatefulSet of a torchrun form, as a person would write them."""
    labels = {"app": NAME}
    settings = {"launch": {"script": SCRIPT, "nodes": PODS}, "train": TRAIN}  # YAML reads JSON
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            # Unready addresses too: torchrun must find its peers before any pod can be ready.
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": NAME},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": VOLUME}}},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME},
            "data": {"train.yaml": json.dumps(settings)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": NAME},
            "spec": {
                "serviceName": NAME,
                "replicas": PODS,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _torchrun_pod(form, image)},
            },
        },
    ]


def _torchrun_pod(form: Form, image: str) -> dict[str, Any]:
    # `exec`, so that torchrun itself is PID 1 and gets the SIGTERM of a deleted pod.
    words = ["exec", "torchrun", f"--nnodes={PODS}", "--nproc-per-node=1", *form.rendezvous, SCRIPT, *ARGS]
    environment = {
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        contract.ENV_CONFIG: contract.CONFIG_PATH,
        contract.ENV_STATE_DIR: STATE_DIR,  # so that the script finds its checkpoints again
    }
    index = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    container = {
        "name": "trainer",
        "image": image,
        "command": ["sh", "-euc", " ".join(words)],
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            {"name": "POD_INDEX", "valueFrom": index},
        ],
        "resources": {"limits": {"memory": MEMORY}, "requests": {"cpu": CPU, "memory": MEMORY}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/rankzero"},
            {"name": "checkpoints", "mountPath": contract.STATE_ROOT},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 -- the pod's
        ],
    }
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": NAME}},
    }
    return {
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
        "topologySpreadConstraints": [spread],
    }
