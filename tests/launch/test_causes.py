"""Which of several things that went wrong explains the others."""

from __future__ import annotations

from rankzero.launch import causes
from rankzero.launch.causes import POD, STOPPED, WORKER, Cause


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


def test_a_record_is_plain_data_without_this_process_clock() -> None:
    assert Cause(POD, "gone", 1, at=5.0).record() == {"kind": "pod", "reason": "gone", "node_rank": 1, "failure": None}
