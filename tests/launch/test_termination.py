"""What Kubernetes shows of a pod after its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.launch import termination
from tests.launch.conftest import MakeGroup

pytestmark = pytest.mark.slow

LINES = [f"line {n} \U0001f525" for n in range(50)]


def attempt(**more: Any) -> dict[str, Any]:
    failure = {"rank": 3, "node_rank": 1, "last_lines": LINES}
    cause = {"kind": "worker", "reason": "rank 3 ended with status 1", "node_rank": 1, "failure": failure}
    return {"attempt": 2, "cause": cause, "last_step": 120, **more}


def test_every_pod_of_a_failed_run_leaves_cause_rank_step_and_last_lines(make_group: MakeGroup) -> None:
    """Known failure A25: failed pods are deleted, and the reason with them."""
    group = make_group("fail", "1", "7", "100", attemptsWithoutProgress=1).start()
    assert [pod.wait() for pod in group.pods] == [7, 7]
    for pod in group.pods:
        reason, where, title, *lines = pod.termination_log.read_text().splitlines()
        assert "the last: rank 1 (node rank 1) ended with status 7: RuntimeError: as the test asked" in reason
        assert where == "attempt 1, rank 1 on node rank 1, no step"
        assert title == "the end of what rank 1 printed:"
        assert lines == ["RuntimeError: as the test asked"]


def test_a_pod_that_is_stopped_from_outside_says_so(make_group: MakeGroup) -> None:
    group = make_group("wait").start()
    group.wait_for_workers(1, 2)
    for pod in group.pods:
        pod.terminate()
    assert [pod.wait() for pod in group.pods] == [contract.EXIT_REQUEUE] * 2
    for pod in group.pods:
        assert pod.termination_log.read_text().startswith("stopped from outside (SIGTERM) in attempt 1")


def test_a_run_that_succeeds_leaves_no_message(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1).start()
    group.wait_for_workers(1, 1)
    group.release()
    assert group.pods[0].wait() == 0
    assert group.pods[0].termination_log.read_text() == ""


def test_the_newest_lines_are_kept_and_the_step_is_told() -> None:
    message = termination.of_failed_run("gave up: rank 3 ended with status 1", [attempt()])
    assert message.splitlines()[:3] == [
        "gave up: rank 3 ended with status 1",
        "attempt 2, rank 3 on node rank 1, last step 120",
        "the end of what rank 3 printed:",
    ]
    assert message.splitlines()[3:] == LINES


@pytest.mark.parametrize("character", ["x", "\u00e9", "\U0001f525"])
def test_no_message_is_longer_than_the_kubelet_keeps_and_it_always_has_last_lines(character: str) -> None:
    record = attempt()
    record["cause"] |= {"reason": character * 5000}
    record["cause"]["failure"]["last_lines"] = [character * 100] * 50
    message = termination.of_failed_run(character * 5000 + "different", [record])
    assert 3600 < len(message.encode()) <= 4096
    assert message.endswith("\n" + character * 100)


def test_a_run_that_failed_without_a_failed_worker_tells_what_there_is() -> None:
    assert termination.of_failed_run("node rank 1 did not join within 5 s", []) == "node rank 1 did not join within 5 s"
    lost = {"kind": "pod", "reason": "test-1 was lost", "node_rank": 1, "failure": None}
    assert termination.of_failed_run("node rank 1 did not join", [attempt(cause=lost)]).splitlines() == [
        "node rank 1 did not join",
        "attempt 2, node rank 1, last step 120",
        "test-1 was lost",
    ]


def test_it_is_cut_at_a_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "termination-log"
    monkeypatch.setattr(contract, "TERMINATION_LOG", str(path))
    termination.leave("outside a pod there is no such file")
    assert not path.exists()
    path.touch()
    termination.leave("x" + "\U0001f525" * 2000 + "\ud800")
    assert re.fullmatch("x\U0001f525{1023}", path.read_bytes().decode())


def test_a_message_that_cannot_be_written_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "TERMINATION_LOG", "/proc")
    termination.leave("a folder")
