"""Relations of resources, network and security that `helm install` refuses, each with its sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import minimal, refusals, render

RDMA = {"name": "rdma/hca", "count": 1}
REQUIRED = {"preset": "roce", "required": True, "resource": RDMA}
OUTSIDE = {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}

RELATIONS: list[tuple[dict[str, Any], str]] = [
    *(
        (
            {"network.fabric": {"preset": preset, "required": True}},
            f"network.fabric.required is true but network.fabric.preset is {preset}: set the preset to infiniband or "
            "roce, whose use can be proved",
        )
        for preset in ("auto", "ethernet", "nvlink-only")
    ),
    *(
        (
            {"network.fabric": REQUIRED, **cpu},
            "network.fabric.required is true but the ranks have no GPUs or train.backend is gloo, which knows no RDMA: "
            "set it to false",
        )
        for cpu in ({"resources.gpus": 0}, {"train.backend": "gloo"})
    ),
    (
        {"network.fabric": {"preset": "infiniband", "required": True}},
        "network.fabric.required is true but pods get no RDMA device: set network.fabric.resource.name to what the "
        "device plugin offers, e.g. rdma/hca, or name networks with one in network.secondary",
    ),
    *(
        (
            {"network.fabric": {"preset": "ethernet", **given}},
            f"network.fabric.{said} but network.fabric.preset is ethernet, which knows no RDMA devices: "
            "set the preset to infiniband or roce",
        )
        for given, said in (
            ({"resource": RDMA}, "resource.name is rdma/hca"),
            ({"devices": ["mlx5_0", "mlx5_1"]}, "devices is mlx5_0,mlx5_1"),
        )
    ),
    (
        {"network.fabric": {"preset": "infiniband", "trafficClass": 106}},
        "network.fabric.trafficClass is 106 but network.fabric.preset is infiniband, and only RoCE packets carry one: "
        "set the preset to roce or the class to -1",
    ),
    (
        {"network.fabric.preset": "nvlink-only", "nodes": 2},
        "network.fabric.preset is nvlink-only but nodes is 2: name what connects the machines (ethernet, infiniband, "
        "roce) or leave auto",
    ),
    (
        {"network.fromNodeProfile": True, "scheduling.nodeProfile": "required"},
        "network.fromNodeProfile is true but network.hostNetwork is off, and pods on their own network have other "
        "interfaces than the node: set it to false",
    ),
    (
        {"network": {"fromNodeProfile": True, "hostNetwork": True}},
        "network.fromNodeProfile is true but scheduling.nodeProfile is preferred, and on a node without a profile no "
        "pod would start: set it to required",
    ),
    *(
        (
            {"network": {"fromNodeProfile": True, "hostNetwork": True, **given}, "scheduling.nodeProfile": "required"},
            f"network.fromNodeProfile is true but network.{said}: leave one of them out",
        )
        for given, said in (
            ({"interface": "bond0"}, "interface is bond0"),
            ({"fabric": {"preset": "roce", "devices": ["mlx5_0"]}}, "fabric.devices is mlx5_0"),
        )
    ),
    (
        {"network": {"secondary": ["a", "b"], "hostNetwork": True}},
        "network.secondary is a, b but network.hostNetwork is on, and pods on the network of the nodes get no other: "
        "choose one of the two",
    ),
    (
        {"network.secondary": ["a"], "podAnnotations": {"k8s.v1.cni.cncf.io/networks": "b"}},
        "network.secondary is a and podAnnotations[k8s.v1.cni.cncf.io/networks] is set too: "
        "name all networks in one of them",
    ),
    (
        {"network.env": {"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}},
        "network.env.NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD is 128, and NCCL opens at most 64 sockets: "
        "lower one of them",
    ),
    (
        {"network": {"env": {"NCCL_NET": "Socket"}, "fabric": {"preset": "roce"}}},
        "network.env.NCCL_NET is Socket but network.fabric.preset is roce: remove it, or set the preset to auto",
    ),
    (
        {"network": {"env": {"NCCL_IB_DISABLE": "1"}, "fabric": {"preset": "infiniband"}}},
        "network.env.NCCL_IB_DISABLE is 1 but network.fabric.preset is infiniband: remove it, or set the preset to "
        "auto",
    ),
    *(
        ({"network.env": {variable: "1"}}, f"network.env.{variable} is set, which the chart sets itself: use {key}")
        for variable, key in (
            ("NCCL_IB_HCA", "network.fabric.devices"),
            ("NCCL_IB_TC", "network.fabric.trafficClass"),
            ("NCCL_SOCKET_FAMILY", "network.ipFamily"),
        )
    ),
    *(
        (
            {"network": {"env": {variable: "0"}, **network}},
            f"network.env.{variable} is set, which the chart sets to {value} as network.fabric.preset and "
            "network.ipFamily say: remove it, or change those",
        )
        for variable, value, network in (
            ("NCCL_P2P_LEVEL", "NVL", {"fabric": {"preset": "nvlink-only"}}),
            ("NCCL_IB_ADDR_FAMILY", "AF_INET6", {"fabric": {"preset": "roce"}, "ipFamily": "IPv6"}),
        )
    ),
    (
        {"network.env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
        "network.env.NVIDIA_VISIBLE_DEVICES is set, by which a pod gets GPUs that it has not asked for: remove it, and "
        "set resources.gpus",
    ),
    (
        {"network.fabric": {"preset": "infiniband", "resource": {"name": "nvidia.com/gpu", "count": 1}}},
        "network.fabric.resource.name is nvidia.com/gpu, as is resources.gpuResource, so its count would be that of "
        "the GPUs: name what the RDMA device plugin offers, e.g. rdma/hca",
    ),
    (
        {"serviceAccount.create": False},
        "serviceAccount.create is false and serviceAccount.name is empty but rbac.create is true, which would give the "
        "rights to every pod of the namespace that names no account: set the name of an account of your own, or "
        "rbac.create to false",
    ),
    *(
        (
            {"network.env": {variable: value}},
            f"network.env.{variable} looks like a secret, which everybody would read in the release: put it into a "
            f"Secret and refer to that, secretEnv.{variable}: {{secret: NAME, key: KEY}}",
        )
        for variable, value in (
            ("HF_TOKEN", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("WANDB_API_KEY", "x"),
            ("http_proxy", "http://me:word@proxy.example.com:3128"),
            ("PASSWORD", "x"),
            ("HARMLESS", "hf_abcdefgh"),
            ("OTHER", "ghp_abcdefgh"),
        )
    ),
    (
        {"network.env": {"A": "1"}, "secretEnv": {"A": {"secret": "s", "key": "k"}}},
        "secretEnv.A is set, and network.env.A too: remove one of them",
    ),
    *(
        (
            {"secretEnv": {variable: {"secret": "s", "key": "k"}}},
            f"secretEnv.{variable} is set, which chart, launcher and device plugin set themselves: remove it",
        )
        for variable in ("RANKZERO_RUN_ID", "MASTER_ADDR", "NCCL_NET", "CUDA_DISABLE_CONTROL", "NVIDIA_VISIBLE_DEVICES")
    ),
    (
        {"networkPolicy": {"enabled": False, "ingress": [{}]}},
        "networkPolicy has rules but networkPolicy.enabled is false: set it to true or remove them",
    ),
    (
        {"networkPolicy.ingress": [{}], "network.hostNetwork": True},
        "networkPolicy has rules but network.hostNetwork is on, where no NetworkPolicy counts: remove them and close "
        "the network of the nodes",
    ),
    (
        {"networkPolicy.egress": {"rules": [OUTSIDE]}},
        "networkPolicy.egress.rules are set but networkPolicy.egress.restricted is false, so all egress is allowed: "
        "set it to true or remove them",
    ),
    (
        {"networkPolicy.egress": {"restricted": True}},
        "networkPolicy.egress.restricted is true without rules, so the launcher cannot reach the API server to free "
        "the GPUs in the end: add its address to networkPolicy.egress.rules, e.g. {to: [{ipBlock: {cidr: "
        "192.0.2.1/32}}], ports: [{port: 6443}]}, or set rbac.create to false",
    ),
    (
        {
            "networkPolicy.egress": {"restricted": True},
            "rbac.create": False,
            "code.git": {"repository": "https://git.example.com/a", "revision": "v1"},
        },
        "networkPolicy.egress.restricted is true without rules but code.git.repository is https://git.example.com/a, "
        "which the init container could not reach: add its address to networkPolicy.egress.rules",
    ),
    *(
        (
            {"networkPolicy.egress": {"restricted": True}, "rbac.create": False, **remote},
            "networkPolicy.egress.restricted is true without rules but objectStorage or a dataset in one is set, which "
            "the script could not reach: add its address to networkPolicy.egress.rules",
        )
        for remote in (
            {"objectStorage.url": "s3://bucket/a"},
            {"datasets": [{"name": "a", "mountPath": "/data/a", "objectStorage": {"url": "s3://bucket/a"}}]},
        )
    ),
    *(
        (
            {f"launch.{key}": ["--token", f"--key={start}{'a1' * 10}"], **others},
            f"launch.{key} holds what looks like a secret ({start}...), which everybody would read in the release: put "
            "it into a Secret, refer to that in secretEnv, and let the program read the variable",
        )
        for start, key, others in (
            ("hf_", "args", {}),
            ("github_pat_", "args", {}),
            ("AKIA", "command", {"launch.script": ""}),
        )
    ),
    (
        {"network.env": {"CUDA_VISIBLE_DEVICES": "0"}},
        "network.env.CUDA_VISIBLE_DEVICES is set to 0, and every rank of a pod would see these cards and no others: "
        "remove it, and set resources.gpus",
    ),
    *(
        (
            {"resources.gpuResource": name},
            f"resources.gpuResource is {name}, which counts parts of cards and not cards: name what the device plugin "
            "calls a card, e.g. nvidia.com/gpu",
        )
        for name in ("nvidia.com/gpumem", "nvidia.com/gpucores", "volcano.sh/vgpu-memory")
    ),
    *(
        (
            {"resources.gpuResource": name},
            f"resources.gpuResource is {name}, a label of nodes and nothing that a pod can ask for: name what `kubectl "
            "describe node` lists below Allocatable, e.g. nvidia.com/gpu",
        )
        for name in ("nvidia.com/gpu.count", "nvidia.com/gpu.present", "nvidia.com/gpu.memory")
    ),
    (
        {"resources": {"gpus": 0, "cpu": "auto"}},
        "resources.cpu is auto but resources.gpus is 0, and auto counts GPUs: name the CPUs",
    ),
    *(
        (
            {"resources": {"guaranteed": True, "cpu": 8, "memory": "1Gi", **given}},
            f"resources.guaranteed is true but {said}",
        )
        for given, said in (
            ({"cpu": ""}, "resources.cpu is empty: set it to a whole number"),
            (
                {"cpu": "1500m"},
                "resources.cpu is 1500m, and only whole CPUs are given to a pod alone: set it to a whole number",
            ),
            (
                {"cpu": 0.5},
                "resources.cpu is 0.5, and only whole CPUs are given to a pod alone: set it to a whole number",
            ),
            ({"memory": ""}, "resources.memory is empty: set it"),
            ({"cpuBurst": True}, "resources.cpuBurst is true: set it to false"),
        )
    ),
    (
        {"resources": {"hugepages": {"2Mi": "1Gi"}}},
        "resources.hugepages.2Mi is 1Gi but neither resources.cpu nor resources.memory is set, and Kubernetes wants "
        "one of them with huge pages: set resources.memory",
    ),
    (
        {"resources": {"memory": "8Gi", "hugepages": {"1Gi": "1536Mi"}}},
        "resources.hugepages.1Gi is 1536Mi, which is no multiple of the page: round it to one",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), RELATIONS, ids=lambda case: str(case)[:60])
def test_values_that_contradict_each_other_are_refused_with_one_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    assert refusals(minimal(changes)) == [sentence]


ACCEPTED: list[dict[str, Any]] = [
    {"network.env": {"NCCL_P2P_LEVEL": "SYS", "NCCL_IB_ADDR_FAMILY": "AF_INET6"}},
    {"serviceAccount": {"create": False, "name": "trainers"}},
    {"serviceAccount.create": False, "rbac.create": False},
    {"network.fabric": {"preset": "infiniband", "required": True}, "network.secondary": ["fabric/rail-0"]},
    {"network.env": {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "16"}},
    {"network.env": {"NCCL_NET": "AWS Libfabric"}},
    {"network": {"env": {"NCCL_IB_DISABLE": "0"}, "fabric": {"preset": "infiniband"}}},
    {"network.env": {"EOS_TOKEN": "</s>", "SPECIAL_PAD_TOKEN": "<pad>"}},
    {"launch.args": ["--model", "hf_something", "--note=AKIA", "--eos-token", "</s>"]},
    *(
        {"networkPolicy.egress": {"restricted": True, "rules": [OUTSIDE]}, **remote}
        for remote in (
            {"code.git": {"repository": "https://git.example.com/a", "revision": "v1"}},
            {"objectStorage.url": "s3://bucket/a"},
        )
    ),
    {"resources.gpuResource": "nvidia.com/mig-3g.40gb"},
    {"resources.gpuResource": "nvidia.com/gpu.shared"},
    {"network.env": {"http_proxy": "http://proxy.example.com:3128", "DB": "pg://me:$(DB_PASSWORD)@db/a", "P": "a@b:1"}},
    {"networkPolicy.ingress": [{"from": [{"ipBlock": {"cidr": c}} for c in ("0.0.0.0/0", "::/0", "2001:db8::/32")]}]},
    {"resources": {"memory": "8Gi", "hugepages": {"512Mi": "1Gi", "16Gi": "16Gi", "32Mi": "64Mi"}}},
    {"network.env": {"TOKENIZERS_PARALLELISM": "false", "HF_TOKEN_PATH": "/run/token", "KEY": "1", "HF_TOKEN": ""}},
    {"networkPolicy.egress": {"restricted": True}, "rbac.create": False},
    {"resources": {"guaranteed": True, "cpu": "16000m", "memory": "64Gi"}},
    {"resources": {"guaranteed": True, "cpu": "auto", "gpus": 1, "memory": "64Gi"}},
    {"resources": {"memory": "8Gi", "hugepages": {"2Mi": "6Mi"}}},
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=lambda case: str(case)[:60])
def test_values_just_inside_the_rules_are_accepted(changes: dict[str, Any]) -> None:
    assert render(minimal(changes))


MISSPELT: list[tuple[str, Any]] = [
    ("network.interface", "^docker0"),
    ("network.interface", "=eth0"),
    ("network.interface", "a-name-too-long-1"),
    ("network.secondary", ["Rail"]),
    ("network.secondary", ["a/b/c"]),
    ("network.fabric.devices", ["mlx5_0,mlx5_1"]),
    ("network.fabric.preset", "ib"),
    ("network.fabric.trafficClass", 256),
    ("network.fabric.resource.name", "hca"),
    ("network.ipFamily", "ipv6"),
    ("secretEnv", {"A": "value"}),
    ("secretEnv", {"A": {"secret": "s"}}),
    ("resources.hugepages", {"4Mi": "4Mi"}),
    ("networkPolicy.ingress", [{"form": []}]),
    ("networkPolicy.ingress", [{"from": [{}]}]),
    ("networkPolicy.ingress", [{"ports": [{"port": 1, "protocol": "tcp"}]}]),
    ("networkPolicy.ingress", [{"ports": [{"endPort": 2}]}]),
    *(
        ("networkPolicy.ingress", [{"from": [{"ipBlock": {"cidr": cidr}}]}])
        for cidr in ("10.0.0.1", "10.0.0.0/33", "300.0.0.0/8", "10.0.0/8", "::/129", "a/8")
    ),
    ("networkPolicy.ingress", [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]),
]


@pytest.mark.parametrize(("key", "value"), MISSPELT, ids=str)
def test_what_the_cluster_or_nccl_would_not_understand_is_refused_by_the_schema(key: str, value: object) -> None:
    found = refusals(minimal({key: value}))
    assert any(sentence.startswith(f"at '/{key.split('.')[0]}") for sentence in found)
