"""The end of a pod in the kinds that end by themselves: its exit status decides what comes next."""

from __future__ import annotations

import signal

import pytest

from rankzero import contract
from rankzero.launch.records import Records
from tests.launch.conftest import MakeGroup
from tests.waiting import until

pytestmark = pytest.mark.slow

ENDING = pytest.mark.parametrize("kind", ["Job", "Pod", "PyTorchJob", "TrainJob"])


@ENDING
def test_the_pods_of_a_run_that_has_succeeded_end(make_group: MakeGroup, kind: str) -> None:
    """Known failure A11: there is nothing to scale down, and nobody waits to be deleted."""
    group = make_group("wait", nodes=1)
    pod = group.pods[0].start(RANKZERO_WORKLOAD=f"{kind}/test")
    group.wait_for_workers(1, 1)
    group.release()
    assert pod.wait() == 0
    assert "--replicas=0" not in pod.output


@pytest.mark.parametrize(("kind", "status"), [("Job", contract.EXIT_REQUEUE), ("PyTorchJob", contract.EXIT_REPLACE)])
def test_a_pod_that_is_stopped_asks_to_be_replaced(make_group: MakeGroup, kind: str, status: int) -> None:
    """Known failure A24."""
    group = make_group("wait", nodes=1)
    pod = group.pods[0].start(RANKZERO_WORKLOAD=f"{kind}/test")
    group.wait_for_workers(1, 1)
    pod.terminate()
    assert pod.wait() == status


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_every_pod_of_a_run_that_has_failed_ends_with_the_workers_own_code(make_group: MakeGroup, kind: str) -> None:
    """Known failure A25."""
    group = make_group("fail", "1", "7", "100", attemptsWithoutProgress=1)
    for pod in group.pods:
        pod.start(RANKZERO_WORKLOAD=f"{kind}/test")
    assert [pod.wait() for pod in group.pods] == [7, 7]


def test_a_run_that_failed_by_a_code_that_asks_for_a_new_pod_gets_none(make_group: MakeGroup) -> None:
    group = make_group("fail", "0", str(contract.EXIT_PREFLIGHT), "100", nodes=1, attemptsWithoutProgress=1)
    assert group.pods[0].start(RANKZERO_WORKLOAD="Job/test").wait() == contract.EXIT_NO_PROGRESS
    assert group.outcome()["exit_code"] == contract.EXIT_PREFLIGHT


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_a_pod_that_is_not_fit_asks_to_be_replaced(make_group: MakeGroup, kind: str) -> None:
    """Before its first attempt that of node rank 0 is not replaced for ever in a PyTorchJob: it fails."""
    group = make_group("wait", nodes=1)
    (group.folder / "volume/test").write_text("")  # a file in the place of the run's folder
    pod = group.pods[0].start(RANKZERO_WORKLOAD=f"{kind}/test", RANKZERO_FIRST_NODE_RANK="0")
    assert pod.wait() == contract.EXIT_PREFLIGHT


def test_a_pod_that_comes_after_a_success_does_not_wait_for_rank_0(make_group: MakeGroup) -> None:
    """Its node was lost at the last moment. Rank 0's pod has completed, and a Job makes no other."""
    group = make_group("wait", rank0Timeout=300)
    for pod in group.pods:
        pod.start(RANKZERO_WORKLOAD="Job/test")
    group.wait_for_workers(1, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.pods[1].start(RANKZERO_WORKLOAD="Job/test").wait() == 0


@pytest.mark.parametrize(("kind", "blamed"), [("StatefulSet", "pod"), ("Job", "container")])
def test_a_container_that_ends_without_a_word_counts_where_nobody_starts_it_again(
    make_group: MakeGroup, kind: str, blamed: str
) -> None:
    """Out of memory looks like that. In a StatefulSet the same pod comes back and tells it apart from a lost one."""
    group = make_group("wait")
    for pod in group.pods:
        pod.start(RANKZERO_WORKLOAD=f"{kind}/test", KUBERNETES_SERVICE_HOST="")
    group.wait_for_workers(1, 2)
    group.pods[1].delete()
    until(lambda: group.attempt(1).get("cause"), what="the attempt ends")
    assert group.attempt(1)["cause"]["kind"] == blamed


def test_a_pod_that_has_only_lost_rank_0_for_a_while_counts_in_no_kind(make_group: MakeGroup) -> None:
    """Rank 0's machine was paused, and the other closed its connection: nothing says that a container had ended."""
    group = make_group("wait", attemptsWithoutProgress=1, heartbeatTimeout=5)
    for pod in group.pods:
        pod.start(RANKZERO_WORKLOAD="Job/test", KUBERNETES_SERVICE_HOST="")
    group.wait_for_workers(1, 2)
    rank0, other = group.pods
    assert rank0.process is not None
    rank0.process.send_signal(signal.SIGSTOP)
    until(lambda: "lost rank 0; workers are stopped" in other.output, what="rank 0 is missed")
    rank0.process.send_signal(signal.SIGCONT)
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    cause = group.attempt(1)["cause"]
    assert (cause["kind"], cause["node_rank"]) == ("pod", 1)
    assert cause["reason"].endswith("closed its connection, and came back")


@pytest.mark.parametrize(("in_place", "blamed"), [(True, "pod"), (False, "container")])
def test_rank_0_that_was_lost_without_a_word_counts_where_nobody_starts_it_again(
    make_group: MakeGroup, in_place: bool, blamed: str
) -> None:
    folder = make_group("wait").folder / "volume"
    before, after = Records(folder, "test", "main", "a"), Records(folder, "test", "main", "b")
    before.load({})
    before.open_attempt([{"node_rank": 0, "uid": "a"}])
    before.save()
    after.load({})
    assert after.close_lost({}, "", in_place)
    assert after.attempts[-1]["cause"]["kind"] == blamed
