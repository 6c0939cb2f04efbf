"""The chart's NetworkPolicy, enforced by kube-router: connections that must succeed and connections that must not.

Known failure A20.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rankzero import contract
from scripts.command import CommandError
from scripts.lab import trainer_image
from scripts.lab.operators import install as operators
from scripts.lab.podman import execute
from scripts.lab.settings import API_PORT, CONTROL, NODES, WORKERS
from scripts.stages import Stages
from tests.lab import releases
from tests.lab.conftest import WAIT, Namespace, on, pod
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900, func_only=True)]

ENGINE = ("kube-router",)
ENDLESS = {"args": ["--steps", "1000000", "--pace", "0.1"]}
EXPERIMENT = "experiments/drill.yaml"
ANY_PORT = 34567
"""One of those that NCCL and gloo might take."""
ENFORCED_WITHIN = 150.0
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
LISTEN = f"import socket, time; server = socket.create_server(('', {ANY_PORT})); time.sleep(600)"
API = {"to": [{"ipBlock": {"cidr": f"{CONTROL.address}/32"}}], "ports": [{"port": API_PORT}]}


@pytest.fixture(scope="module")
def image(lab: None) -> Iterator[str]:  # noqa: ARG001
    """The trainer image on the workers, and the engine in the cluster."""
    try:
        operators.up(Stages(), ENGINE)
        yield trainer_image.provide_on_nodes(Stages())
    finally:
        operators.down(Stages(), ENGINE)
    for node in NODES:
        assert "KUBE-ROUTER" not in execute(node.name, "iptables-save"), "it leaves no rules behind"


@pytest.fixture
def stranger(namespace: Namespace) -> str:
    """A pod beside the release that listens, and its address."""
    namespace.apply(pod("stranger", ["python3", "-c", LISTEN], **on(WORKERS[1])))
    namespace.kubectl("wait", "--for=condition=Ready", "pod/stranger", WAIT)
    return address(namespace, "stranger")


def train(namespace: Namespace, image: str, **policy: Any) -> str:
    """Start a run of two pods, wait until both take part, have rank 0's listen on one more port; rank 0's address."""
    releases.install(namespace, "train", image, EXPERIMENT, launch=ENDLESS, networkPolicy=policy)
    namespace.kubectl("rollout", "status", "statefulset/train", WAIT)
    namespace.kubectl("exec", "train-0", "--", "sh", "-c", f'python -c "{LISTEN}" >/dev/null 2>&1 &')
    rank0 = address(namespace, "train-0")
    until(lambda: connects(namespace, "train-0", rank0, ANY_PORT), what="rank 0's pod listens")
    return rank0


def change(namespace: Namespace, image: str, **policy: Any) -> None:
    """Another policy for the same pods."""
    releases.upgrade(namespace, "train", image, EXPERIMENT, launch=ENDLESS, networkPolicy=policy)


def blocked(namespace: Namespace, source: str, host: str) -> None:
    """Wait until the engine has taken up the policy."""
    until(lambda: not connects(namespace, source, host, ANY_PORT), timeout=ENFORCED_WITHIN, what="it is enforced")


def address(namespace: Namespace, name: str) -> str:
    return namespace.kubectl("get", "pod", name, "--output", "jsonpath={.status.podIP}")


def uids(namespace: Namespace) -> set[str]:
    return {pod["metadata"]["uid"] for pod in releases.pods(namespace, "train").values()}


def connects(namespace: Namespace, source: str, host: str, port: int) -> bool:
    """Whether a pod gets a connection within three seconds."""
    python = "python3" if source == "stranger" else "python"
    try:
        namespace.kubectl("exec", source, "--", python, "-c", CONNECT, host, str(port))
    except CommandError as error:
        if "timed out" in str(error) or "refused" in str(error):
            return False
        raise
    return True


def reached(namespace: Namespace, source: str, host: str, *ports: int) -> set[int]:
    return {port for port in ports if connects(namespace, source, host, port)}


ALL = (contract.RENDEZVOUS_PORT, contract.STATUS_PORT, ANY_PORT)


def test_a_stranger_reaches_what_the_policy_says_and_the_group_itself_everything(
    namespace: Namespace, image: str, stranger: str
) -> None:
    rank0 = train(namespace, image, enabled=False)
    before = uids(namespace)
    assert reached(namespace, "stranger", rank0, *ALL) == set(ALL), "without a policy there is nothing to enforce"

    change(namespace, image)
    blocked(namespace, "stranger", rank0)
    assert reached(namespace, "stranger", rank0, *ALL) == {contract.STATUS_PORT}
    assert reached(namespace, "train-1", rank0, *ALL) == set(ALL)
    assert connects(namespace, "train-1", stranger, ANY_PORT), "egress is left alone"

    change(namespace, image, statusFromAnywhere=False, egress={"restricted": True, "rules": [API]})
    blocked(namespace, "train-1", stranger)
    assert reached(namespace, "stranger", rank0, *ALL) == set()
    assert reached(namespace, "train-1", rank0, *ALL) == set(ALL)
    assert connects(namespace, "train-1", "train-0.train", ANY_PORT), "DNS answers"
    assert connects(namespace, "train-1", CONTROL.address, API_PORT)
    assert connects(namespace, "train-1", "kubernetes.default", 443), "as the launcher calls the API server"
    assert uids(namespace) == before, "a policy restarts nobody"
