"""The examples in experiments/, installed on the local cluster as they are, or without the GPUs that it lacks.

What is not here is run by the file in ``ELSEWHERE``, or not at all, for the reason in ``NOT_RUN``.
"""

from __future__ import annotations

from typing import Any

import pytest

from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from scripts.cache import REPO
from scripts.lab import kube, trainer_image
from scripts.stages import Stages
from tests.lab import releases
from tests.lab.conftest import Namespace
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1500, func_only=True)]

ENDS_WITHIN = 700.0
SCRIPT = (REPO / "trainer/examples/plain_torch.py").read_text(encoding="utf-8")
SEEN = (REPO / "tests/lab/seen.py").read_text(encoding="utf-8")
DIGITS = ["--data", "/opt/rankzero/examples/data", "--epochs", "2"]
NO_GPU: dict[str, Any] = {
    "procsPerNode": 2,
    "train": {"backend": "gloo", "epochs": 2},
    "resources": {"gpus": 0, "cpu": "100m", "cpuBurst": True, "memory": "2Gi"},
}

RUNS: dict[str, dict[str, Any]] = {
    "gpt": {},
    "plain-torch": {},
    "local-checkpoints": {},
    "restricted": {},
    "job": NO_GPU,
    "pod": NO_GPU,
    "monitoring": {**NO_GPU, "monitoring": {"podMonitor": {"enabled": False}}},  # no Prometheus operator here
    "script": {**NO_GPU, "launch": {"args": DIGITS}, "code": {"files": {"train.py": SCRIPT}}},
    "own-launcher": {
        **NO_GPU,
        "procsPerNode": 1,
        "launch": {
            "args": [
                "exec torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK --nproc-per-node=2 --rdzv-backend=static "
                "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /opt/rankzero/examples/plain_torch.py --epochs 2"
            ]
        },
    },
}
"""Each experiment with what is laid over it."""
TOGETHER = ("mnist", "evaluate", "pack", "packed")
"""One needs what another has left."""
ELSEWHERE = {
    "drill": "tests/lab/test_drills.py",
    "git": "tests/lab/test_code.py",
    "k3s-host-path": "tests/lab/test_code.py",
    "hami": "tests/lab/test_hami.py",
    "host-network": "tests/lab/test_host_network.py",
    "gang": "tests/lab/test_gang.py",
    "kueue": "tests/lab/test_gang.py",
    "pytorchjob": "tests/lab/test_operators.py",
    "trainjob": "tests/lab/test_operators.py",
}
"""What they are about is tried there, with other values."""
NOT_RUN = {
    "air-gap": "a registry that asks for credentials",
    "claims": "huge pages",
    "coscheduling": "the scheduler-plugins",
    "infiniband": "RDMA",
    "ipv6": "a cluster with IPv6",
    "nfs": "an NFS server",
    "object-storage": "object storage (the S3 server of tests/trainer/data has no cluster)",
    "placement": "64 nodes, their labels, and GPUs",
    "roce-multus": "RDMA and Multus",
    "volcano": "Volcano",
}
"""What the local cluster lacks for them."""


@pytest.fixture(scope="module")
def image(lab: None) -> str:  # noqa: ARG001
    """The trainer image, on the workers already."""
    return trainer_image.provide_on_nodes(Stages())


def start(namespace: Namespace, image: str, name: str, **values: Any) -> Run:
    """Install an experiment under its own name."""
    releases.install(namespace, name, image, f"experiments/{name}.yaml", **values)
    return Run(connect(str(kube.kubeconfig_path())), namespace.name, name)


def result(run: Run) -> dict[str, Any]:
    """What the run has reported, once it has succeeded."""
    outcome = until(lambda: run.outcome("main"), timeout=ENDS_WITHIN, what=f"the end of {run.name}")
    assert outcome is not None
    assert (outcome["state"], outcome["exit_code"]) == ("succeeded", 0), outcome["reason"]
    found: dict[str, Any] = outcome.get("result", {})
    return found


@pytest.mark.parametrize("name", RUNS)
def test_an_experiment_runs_to_its_end(name: str, namespace: Namespace, image: str) -> None:
    if name == "restricted":
        namespace.kubectl("create", "secret", "generic", "tracking", "--from-literal=api-key=x")
    result(start(namespace, image, name, **RUNS[name]))


def test_digits_are_learnt_and_the_evaluation_says_the_same(namespace: Namespace, image: str) -> None:
    trained = result(start(namespace, image, "mnist"))
    assert trained["test_accuracy"] > 0.95
    judged = result(start(namespace, image, "evaluate"))
    assert judged == {"test_accuracy": trained["test_accuracy"], "step": trained["steps"]}


def test_of_packed_text_each_piece_is_read_once_over_a_pod_that_goes(namespace: Namespace, image: str) -> None:
    result(start(namespace, image, "pack"))
    run = start(
        namespace,
        image,
        "packed",
        datasets=[{"name": "text", "mountPath": "/data", "claim": "pack-checkpoints", "subPath": "shards"}],
        code={"files": {"seen.py": SEEN}},
        launch={"script": "/workspace/seen.py"},
    )

    def step() -> int:
        return int(((run.status() or {}).get("group", {}).get("progress") or {}).get("step", 0))

    until(lambda: step() >= 20, timeout=ENDS_WITHIN, what="step 20")
    run.delete_pod("packed-1")
    steps = result(run)["steps"]

    read = "cd /state && ls seen-* && cat all && echo and && cat seen-*"
    mounts = {"volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    volume = {"name": "state", "persistentVolumeClaim": {"claimName": "packed-checkpoints"}}
    said = namespace.run("reader", read, container=mounts, volumes=[volume]).split()
    files, (everything, seen) = said[:8], halves(said[8:])
    assert files == [f"seen-{attempt}-{rank}" for attempt in (1, 2) for rank in range(4)]
    assert sorted(seen) == sorted(everything)
    assert steps == -(-len(everything) // (4 * 8))  # 4 ranks take 8 each


def halves(words: list[str]) -> tuple[list[str], list[str]]:
    """Those before the word `and`, and those after it."""
    middle = words.index("and")
    return words[:middle], words[middle + 1 :]
