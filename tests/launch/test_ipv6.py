"""Groups on networks with IPv6 (known failure A20)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rankzero import contract
from tests.launch.conftest import MakeGroup
from tests.launch.networks import network

pytestmark = pytest.mark.slow

WITHOUT_IPV4 = "ip address delete 127.0.0.1/8 dev lo"
WITH_A_DEAD_NEIGHBOUR = """
ip link add v0 type veth peer name v1
ip address add 2001:db8::1/64 dev v0 nodad
ip link set v0 up
ip link set v1 up
"""
DEAD = "2001:db8::9"
"""An address on the link that no machine has: nothing answers, as with that of a pod that has gone."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("method", ["direct", pytest.param("torchrun", marks=pytest.mark.long)])
def test_workers_form_a_gloo_group_where_there_is_only_ipv6(make_group: MakeGroup, tmp_path: Path, method: str) -> None:
    script = str(Path(__file__).with_name("gloo_worker.py"))
    with network(tmp_path, WITHOUT_IPV4, "::1 train-0.train\n") as inside:
        group = make_group("wait", nodes=2, procs=1, script=script, method=method)
        group.inside = inside
        for pod in group.pods:
            pod.start(RANKZERO_RANK0_HOST="train-0.train", RANKZERO_POD_IP="::1")
        workers = group.wait_for_workers(1, 2)  # each has made a step with a collective
        group.release()
        assert [pod.wait() for pod in group.pods] == [0, 0]
    assert {worker["MASTER_ADDR"] for worker in workers.values()} == {"::1"}
    assert {worker["GLOO_SOCKET_IFNAME"] for worker in workers.values()} == {"lo"}
    assert group.attempt(1)["cause"] is None


def test_of_a_name_with_two_addresses_the_one_that_answers_is_taken(make_group: MakeGroup, tmp_path: Path) -> None:
    with network(tmp_path, WITH_A_DEAD_NEIGHBOUR, f"{DEAD} train-0.train\n127.0.0.1 train-0.train\n") as inside:
        order = "import socket; print([a[4][0] for a in socket.getaddrinfo('train-0.train', 1, type=1)])"
        found = subprocess.run([*inside, sys.executable, "-c", order], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == str([DEAD, "127.0.0.1"])
        group = make_group("wait")
        group.inside = inside
        for pod in group.pods:
            pod.start(**{contract.ENV_RANK0_HOST: "train-0.train"})
        group.wait_for_workers(1, 2)
        group.release()
        assert [pod.wait() for pod in group.pods] == [0, 0]
