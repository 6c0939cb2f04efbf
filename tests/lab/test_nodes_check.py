"""check.yml while the cluster's API does not answer: what of a node needs no cluster is told of each node."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scripts.cache import REPO
from scripts.lab import kube
from scripts.lab.host import podman_env
from scripts.lab.settings import WORKERS
from tests.roles.running import ansible_playbook

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("lab")]

NEEDS_NO_CLUSTER = ("preflight", "nvidia_driver", "container_runtime", "host_tuning", "rdma", "cpu_manager")


def dead_kubeconfig(folder: Path) -> Path:
    """That of the cluster, but of a port where nobody listens."""
    path = folder / "kubeconfig"
    own = kube.kubeconfig_path().read_text(encoding="utf-8")
    path.write_text(re.sub(r"server: .*", "server: https://127.0.0.1:9", own), encoding="utf-8")
    return path


def test_a_read_of_the_cluster_that_fails_for_all_ends_the_questions_of_none(tmp_path: Path) -> None:
    given = {"machine_kubeconfig": str(dead_kubeconfig(tmp_path)), "node_profile_format": "json"}
    report = tmp_path / "report.json"
    words = ("--extra-vars", json.dumps({**given, "node_profile_output": str(report)}))

    done = ansible_playbook(
        REPO / "playbooks/check.yml", REPO / "playbooks/inventory/lab.yml", *words, env=podman_env()
    )

    told = json.loads(report.read_text(encoding="utf-8"))
    assert done.status == 2
    assert sorted(done.summary) == sorted(told["unfit"]) == sorted(node.name for node in WORKERS)
    for word in done.summary.values():
        assert word.startswith("failed node_profile : Refuse arguments that cannot be: the cluster cannot be read")
    for node in WORKERS:
        assert set(NEEDS_NO_CLUSTER) <= told["nodes"][node.name]["roles"].keys()
