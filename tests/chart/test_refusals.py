"""What `helm install` refuses, with the sentence that the person reads."""

from __future__ import annotations

from typing import Any

import pytest

from rankzero import contract
from tests.chart.rendering import minimal, refusals, render

BUILT = "`make build-image` printed"
CLAIM = {"name": "a", "mountPath": "/data/a", "claim": "a"}
HOST = {"hostPath": {"path": "/srv"}}

RELATIONS: list[tuple[dict[str, Any], str]] = [
    ({"image.repository": ""}, f"image.repository is empty: set it to the image that {BUILT}"),
    (
        {"image.repository": "localhost:5001/rankzero/trainer:0.1.0-g1a2b3c4"},
        "image.repository is localhost:5001/rankzero/trainer:0.1.0-g1a2b3c4, a whole reference: set image.repository "
        "to localhost:5001/rankzero/trainer, image.tag to 0.1.0-g1a2b3c4",
    ),
    (
        {"image.repository": f"trainer:1@sha256:{'0' * 64}"},
        f"image.repository is trainer:1@sha256:{'0' * 64}, a whole reference: set image.repository to trainer, "
        f"image.tag to 1, image.digest to sha256:{'0' * 64}",
    ),
    (
        {"image.repository": f"reg.io/a@sha256:{'0' * 64}"},
        f"image.repository is reg.io/a@sha256:{'0' * 64}, a whole reference: set image.repository to reg.io/a, "
        f"image.digest to sha256:{'0' * 64}",
    ),
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
        {"launch.command": ["python", "-m", "a"]},
        "launch.script is /opt/rankzero/examples/mnist.py but launch.command is python -m a, and a rank runs one of "
        "them: remove one",
    ),
    (
        {"launch": {"command": ["a"], "method": "torchrun"}},
        "launch.method is torchrun but launch.command is a, and only a script has another way to be started: remove "
        "launch.method",
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
        "terminationGracePeriodSeconds is 20 but launch.saveTimeout, launch.stopTimeout and the launcher's own "
        f"{contract.LEAVE_MARGIN} s "
        "make 60, so pods are killed before they have saved and stopped: "
        "set terminationGracePeriodSeconds to at least 60",
    ),
    (
        {"launch.stopTimeout": 300},
        "terminationGracePeriodSeconds is 60 but launch.saveTimeout, launch.stopTimeout and the launcher's own 10 s "
        "make 340, so pods are killed before they have saved and stopped: "
        "set terminationGracePeriodSeconds to at least 340",
    ),
    (
        {"launch.rendezvousPort": 29510},
        "launch.rendezvousPort and launch.statusPort are both 29510, and only one can listen there: "
        "set one of them to another port",
    ),
    (
        {"network.hostNetwork": True, "launch.rendezvousPort": 30000},
        "launch.rendezvousPort is 30000 but network.hostNetwork is on, and there that port can go to Services of type "
        "NodePort: set it below 20000 or leave it out",
    ),
    (
        {"network.hostNetwork": True, "launch.statusPort": 32768},
        "launch.statusPort is 32768 but network.hostNetwork is on, and there that port can go to outgoing connections: "
        "set it below 20000 or leave it out",
    ),
    *(
        (
            {"network.hostNetwork": True, f"launch.{key}": port},
            f"launch.{key} is {port} but network.hostNetwork is on, and there that port can go to the store of any "
            "run's PyTorch: set it below 20000 or leave it out",
        )
        for key in ("rendezvousPort", "statusPort")
        for port in (contract.FIRST_STORE_PORT, 25000, contract.LAST_STORE_PORT)
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
        "checkpoints.accessMode is ReadWriteOnce but nodes is 2: remove it or set it to ReadWriteMany, with a "
        "checkpoints.storageClass that can do it",
    ),
    (
        {"datasets": [{"name": "a", "mountPath": "/data/a"}]},
        "datasets[0] (a) has nothing as its source: give exactly one of claim, nfs, hostPath and objectStorage",
    ),
    (
        {"datasets": [{**CLAIM, **HOST}]},
        "datasets[0] (a) has claim and hostPath as its source: give exactly one of claim, nfs, hostPath and "
        "objectStorage",
    ),
    (
        {"datasets": [CLAIM, {**CLAIM, "mountPath": "/data/b"}]},
        "datasets[1].name is a, as is that of datasets[0]: give each dataset a name of its own",
    ),
    (
        {"datasets": [CLAIM, {**CLAIM, "name": "b"}]},
        "datasets[1].mountPath is /data/a but /data/a holds datasets[0]: "
        "choose a path that is neither above nor below it, e.g. /data/b",
    ),
    (
        {"datasets": [CLAIM, {**CLAIM, "name": "b", "mountPath": "/data/a/b"}]},
        "datasets[1].mountPath is /data/a/b but /data/a holds datasets[0]: "
        "choose a path that is neither above nor below it, e.g. /data/b",
    ),
    (
        {"datasets": [{**CLAIM, "mountPath": "/checkpoints"}]},
        "datasets[0].mountPath is /checkpoints but /checkpoints holds the checkpoints: "
        "choose a path that is neither above nor below it, e.g. /data/a",
    ),
    (
        {"datasets": [{**CLAIM, "mountPath": "/var"}]},
        "datasets[0].mountPath is /var but /var/run holds the system: "
        "choose a path that is neither above nor below it, e.g. /data/a",
    ),
    *(
        (
            {"datasets": [{**CLAIM, "mountPath": f"{path}{below}"}]},
            f"datasets[0].mountPath is {path}{below} but {path} holds the system: "
            "choose a path that is neither above nor below it, e.g. /data/a",
        )
        for path in ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/run")
        for below in ("", "/x")
    ),
    (
        {"scheduling.tolerations": [{"operator": "Equal", "value": "a"}]},
        "scheduling.tolerations[0] has no key and operator Equal: "
        "name the taint's key, or set operator to Exists to tolerate every taint",
    ),
    (
        {"scheduling.tolerations": [{"key": "a"}, {}]},
        "scheduling.tolerations[1] has no key and operator Equal: "
        "name the taint's key, or set operator to Exists to tolerate every taint",
    ),
    (
        {"scheduling.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "scheduling.tolerations[0].value is b but operator is Exists, which compares no value: "
        "remove it or set operator to Equal",
    ),
    (
        {"scheduling.tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 0}]},
        "scheduling.tolerations[0].tolerationSeconds is set but effect is NoSchedule: "
        "set effect to NoExecute or remove it",
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
    {"launch": {"command": ["torchrun", "train.py"]}},
    {"launch": {"script": "/a.py", "method": "launch"}},
    {"image.tag": "", "image.digest": f"sha256:{'0' * 64}"},
    {"image.repository": "localhost:5001/rankzero/trainer"},
    {"procsPerNode": 8, "resources.gpus": 4, "train.backend": "gloo"},
    {"nodes": 1, "checkpoints.accessMode": "ReadWriteOnce"},
    {"nodes": 2, "checkpoints": {"accessMode": "ReadWriteOnce", "existingClaim": "shared"}},
    {"terminationGracePeriodSeconds": 60},
    {"terminationGracePeriodSeconds": 30, "launch": {"script": "/a.py", "saveTimeout": 0}},
    {"launch.rendezvousPort": 40000, "launch.statusPort": 65535},
    {"network.hostNetwork": True, "launch": {"script": "/a.py", "rendezvousPort": 29999, "statusPort": 1024}},
    {"network.hostNetwork": True, "launch": {"script": "/a.py", "rendezvousPort": 29500, "statusPort": 19999}},
    {"launch.rendezvousPort": 25000},
    {"serviceAccount.automount": True, "rbac.create": False},
    {"shm.size": "2047Mi", "resources.memory": "2Gi"},
    {"image.repository": "trainer"},
    {"image.repository": "registry-1.example.com/a/b__c/d--e.f"},
    {"resources.cpu": 0.5},
    {"resources.cpu": "0.5"},
    {"checkpoints.size": "0.05Ti"},
    {"datasets": [{**CLAIM, "mountPath": "/optional"}, {**CLAIM, "name": "b", "mountPath": "/data/ab"}]},
    {"datasets": [{**CLAIM, "mountPath": "/home/me/.cache"}]},
    {"datasets": [{"name": "a", "mountPath": "/a", "nfs": {"server": "fd00::1", "path": "/"}}]},
    {"scheduling.tolerations": [{"operator": "Exists"}, {"key": "example.com/a", "value": ""}]},
    {"scheduling.tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 0}]},
    {"podLabels": {"example.com/team": "", "a": "A_b.c-d"}},
    {"podAnnotations": {"example.com/note": "any text: even this"}},
    {"train.seed": 2**53 - 1},
    {"securityContext.runAsUser": 2**31 - 1},
    {"network.env": {"MASTER_PASSWORD_FILE": "/run/secrets/x", "RANKING": "1"}},
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=lambda case: str(case)[:60])
def test_values_just_inside_the_rules_are_accepted(changes: dict[str, Any]) -> None:
    assert render(minimal(changes))


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
    ({"launch.statusPort": 1023}, "at '/launch/statusPort': minimum: got 1,023, want 1,024"),
    ({"podDisruptionBudget.maxUnavailable": -1}, "at '/podDisruptionBudget/maxUnavailable': minimum: got -1, want 0"),
    ({"train.backend": "ncll"}, "at '/train/backend': value must be one of 'auto', 'nccl', 'gloo', 'mpi'"),
    ({"train.learningRate": 0}, "at '/train/learningRate': exclusiveMinimum: got 0, want 0"),
    ({"resources.memory": 12}, "at '/resources/memory': got number, want string"),
    ({"securityContext.runAsUser": 0}, "at '/securityContext/runAsUser': minimum: got 0, want 1"),
    ({"network.env": {"NCCL_IB_DISABLE": 1}}, "at '/network/env/NCCL_IB_DISABLE': got number, want string"),
    (
        {"scheduling.nodeProfile": True},
        "at '/scheduling/nodeProfile': value must be one of 'off', false, 'preferred', 'required'",
    ),
    ({"podLabels": {"a b": ""}}, "at '/podLabels': additional properties 'a b' not allowed"),
    ({"podAnnotations": {"a/b/c": ""}}, "at '/podAnnotations': additional properties 'a/b/c' not allowed"),
    ({"network.env": {"A-B": ""}}, "at '/network/env': additional properties 'A-B' not allowed"),
    (
        {"scheduling.nodeSelector": {"b c": ""}},
        "at '/scheduling/nodeSelector': additional properties 'b c' not allowed",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), SCHEMA, ids=lambda case: str(case)[:60])
def test_keys_types_and_ranges_are_refused_by_the_schema(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]


BLANK: list[tuple[dict[str, Any], str]] = [
    ({"checkpoints.keep": None}, "at '/checkpoints': missing property 'keep'"),
    ({"checkpoints": None}, "at '': missing property 'checkpoints'"),
    ({"securityContext.runAsUser": None}, "at '/securityContext': missing property 'runAsUser'"),
    ({"run.id": None}, "at '/run': missing property 'id'"),
    ({"launch": None}, "at '': missing property 'launch'"),
    ({"launch.stopTimeout": None}, "at '/launch/stopTimeout': got null, want integer"),
    ({"datasets": [{**CLAIM, "claim": None}]}, "at '/datasets/0/claim': got null, want string"),
]


@pytest.mark.parametrize(("changes", "sentence"), BLANK, ids=lambda case: str(case)[:60])
def test_a_key_left_blank_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Helm drops it together with its default: the claim would lose its keep-policy, the pod its user."""
    assert refusals(minimal(changes)) == [sentence]


MISSPELT: list[tuple[str, list[Any]]] = [
    ("image.repository", ["oci://reg/x", "Reg.io/Me/Trainer", "reg/x/", "reg/x@sha256"]),
    ("podLabels", [{"a": "has space"}, {"a": "-"}, {"a": "a" * 64}]),
    ("scheduling.nodeSelector", [{"a": "b c"}]),
    ("checkpoints.size", ["0Gi", "0.0Gi", "00Gi", "1", "Gi"]),
    ("shm.size", ["0Gi"]),
    ("resources.memory", ["0Gi"]),
    ("resources.cpu", ["0", "0.0", "0m", 0]),
    ("resources.gpuResource", ["gpu", "a..b/gpu"]),
    ("serviceAccount.name", ["a..b", ".a", "a.-b", "a" * 254]),
    ("checkpoints.existingClaim", ["a..b"]),
    ("securityContext.fsGroup", [2**31]),
    ("train.seed", [2**53, 2**53 + 1]),
]


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in MISSPELT for value in values])
def test_a_value_that_would_fail_or_change_on_its_way_is_refused_before_anything_is_made(
    key: str, value: object
) -> None:
    (sentence,) = refusals(minimal({key: value}))
    assert sentence.startswith(f"at '/{key.replace('.', '/')}")


PATHS = ["data", "/", "//", "//tmp", "/.", "/..", "/dev/../tmp", "/data/", "/data #x", "/data\nx", "/data:x"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("key", ["mountPath", "hostPath"])
def test_a_path_that_is_not_absolute_and_plain_is_refused(key: str, path: str) -> None:
    dataset = {**CLAIM, "mountPath": path} if key == "mountPath" else {"name": "a", "mountPath": "/a"}
    source = {} if key == "mountPath" else {"hostPath": {"path": path}, "readOnly": False}
    (sentence,) = refusals(minimal({"datasets": [{**dataset, **source}]}))
    assert sentence.startswith(f"at '/datasets/0/{key}")


def node_affinity(**requirement: object) -> dict[str, Any]:
    """Rules with one requirement on nodes."""
    terms = [{"matchExpressions": [requirement]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

AFFINITY: list[tuple[dict[str, Any], str]] = [
    ({"podAffinity": {"foo": 1}}, "at '/podAffinity': additional properties 'foo' not allowed"),
    ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}},
     f"at '/nodeAffinity/{REQUIRED}/nodeSelectorTerms': minItems: got 0, want 1"),
    ({"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}},
     f"at '/nodeAffinity/{PREFERRED}/0/weight': maximum: got 101, want 100"),
    ({"podAntiAffinity": {REQUIRED: [{"labelSelector": {}}]}},
     f"at '/podAntiAffinity/{REQUIRED}/0': missing property 'topologyKey'"),
    ({"podAffinity": {REQUIRED: [{"topologyKey": "a", "labelSelector": {"matchLabels": {"a": "b c"}}}]}},
     f"at '/podAffinity/{REQUIRED}/0/labelSelector/matchLabels/a': 'b c' does not match pattern"),
    ({"podAffinity": {REQUIRED: [{"topologyKey": "a", "matchLabelKeys": ["b"]}]}},
     "properties 'labelSelector' required, if 'matchLabelKeys' exists"),
    ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.nam", "operator": "In", "values": ["a"]}]}]}}},
     "value must be 'metadata.name'"),
    (node_affinity(key="a", operator="Inn", values=["b"]), "value must be one of 'In', 'NotIn', 'Exists'"),
    (node_affinity(key="a", operator="In"), "missing property 'values'"),
    (node_affinity(key="a", operator="In", values=[]), "minItems: got 0, want 1"),
    (node_affinity(key="a", operator="Exists", values=["b"]), "maxItems: got 1, want 0"),
    (node_affinity(key="a", operator="Gt", values=["b"]), "'b' does not match pattern"),
]  # fmt: skip


@pytest.mark.parametrize(("affinity", "sentence"), AFFINITY, ids=lambda case: str(case)[:60])
def test_affinity_that_the_cluster_would_refuse_is_refused(affinity: dict[str, Any], sentence: str) -> None:
    found = refusals(minimal({"scheduling.affinity": affinity}))
    assert sentence in found[-1].replace("at '/scheduling/affinity", "at '")


def test_affinity_of_every_kind_is_accepted() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["a"]}
    pods = {REQUIRED: [term], PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}
    for requirement in (
        {"operator": "NotIn", "values": ["b"]},
        {"operator": "DoesNotExist"},
        {"operator": "Lt", "values": ["8"]},
    ):
        rules = {**node_affinity(key="example.com/a", **requirement), "podAffinity": pods, "podAntiAffinity": pods}
        assert render(minimal({"scheduling.affinity": rules}))
