"""What `helm install` refuses, with the sentence that the person reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import minimal, refusals, render

BUILT = "`make build-image` printed"
CLAIM = {"name": "a", "mountPath": "/data/a", "claim": "a"}
HOST = {"hostPath": {"path": "/srv"}}

RELATIONS: list[tuple[dict[str, Any], str]] = [
    ({"image.repository": ""}, f"image.repository is empty: set it to the image that {BUILT}"),
    (
        {"image.tag": "latest"},
        f"image.tag is latest, which names another image tomorrow: set the tag that {BUILT}",
    ),
    ({"image.tag": ""}, f"image.tag and image.digest are empty: set one of them to what {BUILT}"),
    ({"nodes": 0}, "nodes is 0, the least allowed is 1: set it to the number of machines to train on"),
    ({"nodes": -2}, "nodes is -2, the least allowed is 1: set it to the number of machines to train on"),
    (
        {"launch.script": ""},
        "launch.script is empty: set it to the path of the training script inside the image, "
        "e.g. /opt/rankzero/examples/mnist.py",
    ),
    (
        {"train.backend": "nccl", "resources.gpus": 0},
        "train.backend is nccl but resources.gpus is 0: ask for GPUs or set train.backend to gloo",
    ),
    (
        {"procsPerNode": 8, "resources.gpus": 4},
        "procsPerNode is 8 but resources.gpus is 4, and two ranks cannot share a GPU: "
        "set procsPerNode to 0 or to at most 4",
    ),
    (
        {"terminationGracePeriodSeconds": 20},
        "terminationGracePeriodSeconds is 20 but launch.stopTimeout is 20, so pods are killed before they have "
        "stopped: set terminationGracePeriodSeconds above 20",
    ),
    (
        {"launch.stopTimeout": 300},
        "terminationGracePeriodSeconds is 60 but launch.stopTimeout is 300, so pods are killed before they have "
        "stopped: set terminationGracePeriodSeconds above 300",
    ),
    (
        {"shm.size": "2Gi", "resources.memory": "2Gi"},
        "shm.size is 2Gi but resources.memory is 2Gi, which counts /dev/shm too: "
        "set shm.size below it or raise resources.memory",
    ),
    (
        {"shm.size": "3G", "resources.memory": "2.5Gi"},
        "shm.size is 3G but resources.memory is 2.5Gi, which counts /dev/shm too: "
        "set shm.size below it or raise resources.memory",
    ),
    (
        {"nodes": 2, "checkpoints.accessMode": "ReadWriteOnce"},
        "checkpoints.accessMode is ReadWriteOnce but nodes is 2: set it to ReadWriteMany, with a "
        "checkpoints.storageClass that can do it",
    ),
    (
        {"datasets": [{"name": "a", "mountPath": "/data/a"}]},
        "datasets[0] (a) has nothing as its source: give exactly one of claim, nfs and hostPath",
    ),
    (
        {"datasets": [{**CLAIM, **HOST}]},
        "datasets[0] (a) has claim and hostPath as its source: give exactly one of claim, nfs and hostPath",
    ),
    (
        {"datasets": [CLAIM, {**CLAIM, "mountPath": "/data/b"}]},
        "datasets[1].name is a, as is that of datasets[0]: give each dataset a name of its own",
    ),
    (
        {"datasets": [CLAIM, {**CLAIM, "name": "b", "mountPath": "/data/a/"}]},
        "datasets[1].mountPath is /data/a/, where datasets[0] already lies: choose another path",
    ),
    (
        {"datasets": [{**CLAIM, "mountPath": "/checkpoints"}]},
        "datasets[0].mountPath is /checkpoints, where the checkpoints already lies: choose another path",
    ),
    (
        {"network.env": {"RANKZERO_NODE_RANK": "0"}},
        "network.env.RANKZERO_NODE_RANK is set, which the launcher sets itself: remove it",
    ),
    (
        {"network.env": {"MASTER_ADDR": "10.0.0.1"}},
        "network.env.MASTER_ADDR is set, which the launcher sets itself: remove it",
    ),
    (
        {"network.env": {"NCCL_SOCKET_IFNAME": "eth0"}},
        "network.env.NCCL_SOCKET_IFNAME is set, which the chart sets itself: use network.interface",
    ),
    (
        {"network.env": {"NCCL_DEBUG": "INFO"}},
        "network.env.NCCL_DEBUG is set, which the chart sets itself: use network.ncclDebug",
    ),
    (
        {"podLabels": {"app.kubernetes.io/instance": "other"}},
        "podLabels[app.kubernetes.io/instance] is set, by which the chart finds its pods: remove it",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), RELATIONS, ids=lambda case: str(case)[:60])
def test_values_that_contradict_each_other_are_refused_with_one_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    assert refusals(minimal(changes)) == [sentence]


def test_all_contradictions_are_named_at_once() -> None:
    found = refusals(minimal({"nodes": 0, "image.tag": "latest", "terminationGracePeriodSeconds": 1}))
    assert [sentence.split()[0] for sentence in found] == ["image.tag", "nodes", "terminationGracePeriodSeconds"]


ACCEPTED: list[dict[str, Any]] = [
    {"image.tag": "", "image.digest": f"sha256:{'0' * 64}"},
    {"image.repository": "localhost:5001/rankzero/trainer"},
    {"procsPerNode": 8, "resources.gpus": 4, "train.backend": "gloo"},
    {"nodes": 1, "checkpoints.accessMode": "ReadWriteOnce"},
    {"nodes": 2, "checkpoints": {"accessMode": "ReadWriteOnce", "existingClaim": "shared"}},
    {"terminationGracePeriodSeconds": 21},
    {"shm.size": "2047Mi", "resources.memory": "2Gi"},
    {"resources.cpu": 0.5},
    {"network.env": {"MASTER_PASSWORD_FILE": "/run/secrets/x", "RANKING": "1"}},
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=lambda case: str(case)[:60])
def test_values_just_inside_the_rules_are_accepted(changes: dict[str, Any]) -> None:
    assert render(minimal(changes))


LONGEST = "a" * 52


def test_a_release_name_that_breaks_the_63_characters_of_a_label_is_refused() -> None:
    """Known failure A15: a revision's hash of up to 10 digits is appended to the StatefulSet's name in a label."""
    assert len(f"{LONGEST}-{2**32 - 1}") == 63
    assert render(minimal({"nodes": 10000}), release=LONGEST)
    assert refusals(minimal({}), release=f"{LONGEST}a") == [
        f"the release name {LONGEST}a has 53 characters, the most possible is 52: choose a shorter one"
    ]


@pytest.mark.parametrize("name", ["llama.3", "3b"])
def test_a_release_name_that_is_no_host_name_is_refused(name: str) -> None:
    assert refusals(minimal({}), release=name) == [
        f"the release name {name} cannot be part of a host name: use a-z, 0-9 and -, beginning with a letter"
    ]


SCHEMA: list[tuple[dict[str, Any], str]] = [
    ({"nods": 2}, "at '': additional properties 'nods' not allowed"),
    ({"train.lerningRate": 0.1}, "at '/train': additional properties 'lerningRate' not allowed"),
    ({"launch.nodes": 2}, "at '/launch': additional properties 'nodes' not allowed"),
    ({"nodes": "two"}, "at '/nodes': got string, want integer"),
    ({"nodes": 1.5}, "at '/nodes': got number, want integer"),
    ({"train.epochs": 0}, "at '/train/epochs': minimum: got 0, want 1"),
    ({"train.backend": "ncll"}, "at '/train/backend': value must be one of 'auto', 'nccl', 'gloo', 'mpi'"),
    ({"train.learningRate": 0}, "at '/train/learningRate': exclusiveMinimum: got 0, want 0"),
    ({"resources.memory": 12}, "at '/resources/memory': got number, want string"),
    ({"securityContext.runAsUser": 0}, "at '/securityContext/runAsUser': minimum: got 0, want 1"),
    ({"network.env": {"NCCL_IB_DISABLE": 1}}, "at '/network/env/NCCL_IB_DISABLE': got number, want string"),
    (
        {"scheduling.nodeProfile": "off"},
        "at '/scheduling/nodeProfile': value must be one of 'ignored', 'preferred', 'required'",
    ),
    (
        {"datasets": [{"name": "a", "mountPath": "data", "claim": "a"}]},
        "at '/datasets/0/mountPath': 'data' does not match pattern '^/[^:]+$'",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), SCHEMA, ids=lambda case: str(case)[:60])
def test_keys_types_and_ranges_are_refused_by_the_schema(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]
