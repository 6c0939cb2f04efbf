"""Which of several things that went wrong explains the others."""

from __future__ import annotations

import pytest

from rankzero.launch import causes
from rankzero.launch.causes import POD, STOPPED, WORKER, Cause
from rankzero.launch.protocol import WorkerFailed


def worker(rank: int, error: str, *, at: float) -> Cause:
    """A worker that ended with this error."""
    failure = WorkerFailed(
        attempt=1, node_rank=rank, rank=rank, local_rank=0, exit_code=1, signal="", error=error, last_lines=[], time=0.0
    )
    return Cause(WORKER, error, rank, failure, at=at)


def test_the_first_worker_to_fail_explains_those_that_followed() -> None:
    followers = [Cause(WORKER, "peer closed", 1, at=100.2), Cause(WORKER, "peer closed", 2, at=100.1)]
    first = Cause(WORKER, "out of memory", 0, at=100.0)
    assert causes.first([*followers, first]) is first


def test_a_lost_pod_explains_the_workers_that_lost_their_peer_though_it_is_noticed_later() -> None:
    worker = Cause(WORKER, "peer closed", 0, at=100.0)
    lost = Cause(POD, "no heartbeat for 15 s", 1, at=99.5)  # its last sign of life; noticed at 114.5
    assert causes.first([worker, lost]) is lost


def test_a_pod_that_is_stopped_long_after_a_bug_does_not_hide_it() -> None:
    bug = Cause(WORKER, "ValueError", 0, at=100.0)
    assert causes.first([bug, Cause(STOPPED, "evicted", 1, at=120.0)]) is bug


@pytest.mark.parametrize(
    "echo",
    [
        "[rank0]: RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:61150.",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:547] Read error [10.0.0.1]:9417: Connection reset by peer",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed.",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ],
)
def test_a_worker_that_lost_its_peer_does_not_explain_the_peer_that_ends_after_it(echo: str) -> None:
    """Known failure A25: a process that prints its traceback has closed its connections already."""
    lost_peer, bug = worker(0, echo, at=100.0), worker(1, "ValueError: a bug", at=101.0)
    assert lost_peer.is_echo
    assert not bug.is_echo
    assert causes.first([lost_peer, bug]) is bug
    assert causes.first([lost_peer]) is lost_peer


def test_a_record_is_plain_data_without_this_process_clock() -> None:
    record = {"kind": "pod", "reason": "gone", "node_rank": 1, "failure": None, "rank": -1}
    assert Cause(POD, "gone", 1, at=5.0).record() == record
