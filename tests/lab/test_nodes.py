"""The playbooks on the cluster's workers: a label is there only while what it promises holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from scripts import command
from scripts.cache import REPO
from scripts.lab import gpus, kube
from scripts.lab.host import podman_env
from scripts.lab.podman import podman
from scripts.lab.settings import WORKERS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[0]


@pytest.fixture
def prepared(lab: None) -> Iterator[None]:  # noqa: ARG001
    """A worker on which site.yml has run, and has run again afterwards."""
    site()
    try:
        yield
    finally:
        site()
        gpus.advertise()  # a kubelet that was restarted has forgotten them


def site(**extra: Any) -> None:
    """Run the playbook on one worker."""
    program = Path(sys.executable).parent / "ansible-playbook"
    command.run(
        [
            program,
            "-i",
            "playbooks/inventory/lab.yml",
            "--limit",
            NODE.name,
            "playbooks/site.yml",
            "-e",
            json.dumps(extra),
        ],
        cwd=REPO,
        env={**podman_env(), "RANKZERO_KUBECONFIG": str(kube.kubeconfig_path())},
    )


def labels() -> dict[str, Any]:
    """Those labels of the worker that the playbook writes."""
    of_node: dict[str, Any] = json.loads(kube.kubectl("get", "node", NODE.name, "-o", "json"))["metadata"]["labels"]
    ours = {contract.LABEL_NODE_PROFILE, contract.LABEL_NODE_PROFILE_HASH}
    return {name: value for name, value in of_node.items() if name in ours}


def test_a_node_has_no_label_while_a_service_waits_for_its_limits(prepared: None) -> None:  # noqa: ARG001
    before = labels()
    kubelet = podman("exec", NODE.name, "systemctl", "show", "--property=MainPID", "--value", "kubelet").strip()
    podman("exec", NODE.name, "prlimit", "--pid", kubelet, "--memlock=4194304:4194304")

    site(container_runtime_restart_ok=False)
    waiting = labels()
    site(container_runtime_restart_ok=True)

    assert set(before) == {contract.LABEL_NODE_PROFILE, contract.LABEL_NODE_PROFILE_HASH}
    assert waiting == {}
    assert labels() == before


def test_a_refused_argument_takes_no_label_and_a_run_that_fails_does(prepared: None) -> None:  # noqa: ARG001
    before = labels()
    with pytest.raises(command.CommandError, match="host_tuning_somaxconn is 1"):
        site(host_tuning_somaxconn=1)
    refused = labels()

    # A value that the kernel refuses when it is written, after all rules have passed.
    extra = [{"key": "net.ipv4.tcp_keepalive_intvl", "value": "often", "reason": "a slip", "reach": "new pods"}]

    with pytest.raises(command.CommandError, match="tcp_keepalive_intvl"):
        site(host_tuning_extra_sysctls=extra)

    assert refused == before != {}
    assert labels() == {}
