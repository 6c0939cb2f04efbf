"""What the real admission and the real kernel make of the chart's security settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rankzero import contract
from scripts.command import CommandError
from scripts.lab import kube, trainer_image
from scripts.stages import Stages
from tests.chart.rendering import minimal, only, render
from tests.lab import releases
from tests.lab.conftest import WAIT, Namespace

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

LEVEL = "pod-security.kubernetes.io/enforce"
LEVELS = ("restricted", "baseline", "privileged")
"""From the strictest to the loosest."""
CLAIM = {"name": "a", "mountPath": "/data/a"}

NFS = {"nfs": {"server": "storage.example.com", "path": "/a"}}
FOLDER = {"hostPath": {"path": "/srv"}}
BUCKET = {"name": "a", "mountPath": "/data/a", "objectStorage": {"url": "s3://bucket/a"}}

NEEDED: list[tuple[dict[str, Any], str]] = [
    ({"nodes": 2, "secretEnv": {"HF_TOKEN": {"secret": "hub", "key": "token"}}}, "restricted"),
    ({"datasets": [{**CLAIM, "claim": "a"}]}, "restricted"),
    ({"datasets": [BUCKET]}, "restricted"),
    ({"code.git": {"repository": "https://git.example.com/a", "revision": "v1"}}, "restricted"),
    ({"resources": {"cpu": 8, "memory": "1Gi", "guaranteed": True, "hugepages": {"2Mi": "2Mi"}}}, "restricted"),
    ({"network.fabric": {"preset": "roce", "required": True, "resource": {"name": "rdma/hca"}}}, "restricted"),
    ({"network.secondary": ["fabric/rail-0"]}, "restricted"),
    *(({key: NFS}, "baseline") for key in ("code", "checkpoints")),
    ({"datasets": [{**CLAIM, **NFS}]}, "baseline"),
    *(({key: FOLDER}, "privileged") for key in ("code", "checkpoints", "cache")),
    ({"datasets": [{**CLAIM, **FOLDER}]}, "privileged"),
    ({"network.hostNetwork": True}, "privileged"),
]
"""docs/network.md has them for people."""


@pytest.fixture
def levels(namespace: Namespace) -> Iterator[dict[str, Namespace]]:
    """A namespace that enforces each level."""
    own = {level: Namespace(f"{namespace.name}-{level}") for level in LEVELS}
    for level, found in own.items():
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.name, "labels": {LEVEL: level}}}
        kube.kubectl("create", "--filename", "-", stdin=json.dumps(document))
    try:
        yield own
    finally:
        kube.kubectl("delete", "namespace", *(found.name for found in own.values()), "--wait=false")


def admitted(namespace: Namespace, changes: dict[str, Any]) -> bool:
    """Whether the API server would take a pod that the chart renders."""
    template = only(render(minimal(changes)), "StatefulSet")["spec"]["template"]
    template["metadata"]["name"] = "mnist-0"
    template["spec"]["serviceAccountName"] = "default"
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", **template})
    try:
        namespace.kubectl("create", "--dry-run=server", "--filename", "-", stdin=pod)
    except CommandError as error:
        if "violates PodSecurity" in str(error):
            return False
        raise
    return True


def test_each_option_is_admitted_from_the_level_that_the_guide_names(levels: dict[str, Namespace]) -> None:
    found = [next(level for level in LEVELS if admitted(levels[level], changes)) for changes, _ in NEEDED]
    assert found == [level for _, level in NEEDED]


def test_two_pods_of_two_ranks_train_to_the_end_where_restricted_is_enforced(namespace: Namespace) -> None:
    image = trainer_image.provide_on_nodes(Stages())
    kube.kubectl("label", "namespace", namespace.name, f"{LEVEL}=restricted")
    short = {"args": ["--steps", "20", "--pace", "0.1"]}
    releases.install(namespace, "train", image, "experiments/drill.yaml", procsPerNode=2, launch=short)
    namespace.kubectl("wait", "--for=jsonpath={.spec.replicas}=0", "statefulset/train", WAIT)
    reasons = namespace.kubectl("get", "events", "--output", "jsonpath={.items[*].reason}").split()
    assert contract.EVENT_SUCCEEDED in reasons
    assert "FailedCreate" not in reasons


def test_the_capability_to_lock_memory_is_empty_for_a_user_that_is_not_root(namespace: Namespace) -> None:
    """Known failure A19. Why the launcher reads the limit, and the playbook raises it."""
    security = {
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
    }
    words = "sed -n 's/^CapEff:[[:space:]]*//p; s/^CapBnd:[[:space:]]*//p' /proc/self/status"
    effective, bounding = namespace.run("lock", words, container={"securityContext": security}).split()
    assert (int(effective, 16), int(bounding, 16)) == (0, 1 << 14)
