"""The group as a whole: launchers that meet, work, lose a part, and end."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.launch.protocol import VERSION, Hello
from tests.launch.conftest import MakeGroup
from tests.launch.pods import alive
from tests.waiting import PATIENCE, until

SILENT_AFTER = 5
"""Seconds; a launcher on a busy machine may get no processor for two."""


def test_every_worker_gets_the_environment_that_torchrun_documents(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=2, procs=2).start()
    workers = group.wait_for_workers(1, 4)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert sorted(workers) == [0, 1, 2, 3]
    for rank, env in workers.items():
        assert (env["RANK"], env["LOCAL_RANK"], env["GROUP_RANK"]) == (str(rank), str(rank % 2), str(rank // 2))
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["GROUP_WORLD_SIZE"]) == ("4", "2", "2")
        assert env["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert env["OMP_NUM_THREADS"] == "1"
    assert len({env["MASTER_PORT"] for env in workers.values()}) == 1
    assert (workers[0]["GLOO_SOCKET_IFNAME"], workers[0]["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")


def test_a_finished_run_leaves_its_outcome_and_is_not_run_again(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1).start()
    group.wait_for_workers(1, 1)
    group.release()
    assert group.pods[0].wait() == 0
    assert group.outcome()["state"] == "succeeded"
    assert group.pods[0].start().wait() == 0
    assert group.attempt(2) == {}
    assert "set run.id to train anew" in group.pods[0].output


def test_one_failed_worker_restarts_the_whole_group(make_group: MakeGroup) -> None:
    """Known failure A5: one dies, the others must not hang."""
    group = make_group("fail", "1", "1", "1").start()
    first = group.wait_for_workers(1, 2)
    second = group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert not alive(int(first[0]["pid"]))
    assert second[0]["MASTER_PORT"] != first[0]["MASTER_PORT"]  # A7: a new rendezvous for each attempt
    cause = group.attempt(1)["cause"]
    assert cause["kind"] == "worker"
    assert cause["failure"]["last_lines"] == ["RuntimeError: as the test asked"]
    assert "rank 1 (node rank 1) ended with status 1: RuntimeError: as the test asked" in cause["reason"]


def test_the_worker_that_failed_is_the_cause_though_its_peers_ended_before_it(make_group: MakeGroup) -> None:
    """Known failure A25: what is recorded is the first broken link, not who fell over it."""
    group = make_group("echo", "1", "64")
    group.constants["coordinator.FIRST_CAUSE_WITHIN"] = 60
    group.start()
    assert [pod.wait() for pod in group.pods] == [64, 64]
    cause = group.attempt(1)["cause"]
    assert cause["node_rank"] == 1
    assert "ValueError: a bug" in cause["reason"]


def test_a_lost_pod_is_replaced_and_the_survivor_keeps_its_launcher(make_group: MakeGroup) -> None:
    group = make_group("wait").start()
    group.wait_for_workers(1, 2)
    survivor = group.pods[0].process
    group.pods[1].delete()
    group.pods[1].start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.pods[0].process is survivor
    assert group.attempt(1)["cause"]["kind"] == "pod"
    assert "test-1 (node rank 1) closed its connection" in group.attempt(1)["cause"]["reason"]


def test_losing_rank_0_stops_the_others_and_attempts_are_counted_on(make_group: MakeGroup) -> None:
    group = make_group("wait").start()
    first = group.wait_for_workers(1, 2)
    group.pods[0].delete()
    until(lambda: not alive(int(first[1]["pid"])), what="the survivor's worker stops")
    group.pods[0].start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.attempt(2)["cause"] is None
    assert group.attempt(1)["cause"]["reason"] == "rank 0 was lost"


def test_a_pod_that_is_being_stopped_says_so_and_asks_to_be_started_again(make_group: MakeGroup) -> None:
    group = make_group("wait").start()
    group.wait_for_workers(1, 2)
    group.pods[1].terminate()
    assert group.pods[1].wait() == contract.EXIT_REQUEUE
    until(lambda: group.attempt(1).get("cause"), what="the attempt's end")
    assert group.attempt(1)["cause"]["kind"] == "stopped"
    assert "is leaving: its pod is being stopped" in group.attempt(1)["cause"]["reason"]
    group.pods[1].start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


@pytest.mark.parametrize("stopped", [0, 1])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("saved", "all ranks have saved, "),
        ("unsaved", "all ranks have left, without saying that they saved, "),
        ("crash", "all ranks have left, without saying that they saved, "),
    ],
)
def test_a_save_is_claimed_only_where_the_last_step_has_a_checkpoint(
    make_group: MakeGroup, how: str, words: str, stopped: int
) -> None:
    """Known failure A24. The volume may refuse the checkpoint, and a worker may fail before it."""
    group = make_group("leave", how)
    if how == "saved":  # else it is waited for to the end
        group.constants["coordinator.REPORT_WITHIN"] = 60
    group.start()
    until(lambda: "step" in group.pods[0].status().get("group", {}).get("progress", {}), what="a step")
    group.pods[stopped].terminate()
    assert group.pods[stopped].wait() == contract.EXIT_REQUEUE
    rank0 = group.pods[0]
    until(lambda: words in rank0.output, what="rank 0 says so")
    assert rank0.output.count("all ranks have ") == 1


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_pod_that_is_stopped_right_after_the_first_step_is_saved_too(make_group: MakeGroup, stopped: int) -> None:
    """Known failure A24. The last report may be from before the script has said that it can."""
    group = make_group("leave", "saved", "late").start()
    until(lambda: group.pods[0].status().get("group", {}).get("progress", {}).get("phase"), what="a report")
    (group.folder / "begin").touch()
    until(lambda: len(list(group.folder.glob("begun-*"))) == 2, what="the first step of all ranks")
    group.pods[stopped].terminate()
    assert group.pods[stopped].wait() == contract.EXIT_REQUEUE
    until(lambda: "all ranks have saved, " in group.pods[0].output, what="rank 0 says so")


def test_stopping_rank_0_closes_the_attempt_and_its_successor_goes_on(make_group: MakeGroup) -> None:
    group = make_group("wait").start()
    group.wait_for_workers(1, 2)
    group.pods[0].terminate()
    assert group.pods[0].wait() == contract.EXIT_REQUEUE
    assert "leaving" in group.attempt(1)["cause"]["reason"]
    group.pods[0].start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_a_rank_0_that_is_killed_before_it_has_left_was_being_stopped_and_not_lost(make_group: MakeGroup) -> None:
    """Known failure A24: the grace is over before the pod is."""
    group = make_group("stubborn", stopTimeout=60).start()
    group.wait_for_workers(1, 2)
    group.pods[0].terminate()
    until(lambda: group.attempt(1).get("ending"), what="rank 0 knows that it leaves")
    group.pods[0].delete()
    group.pods[0].start()
    until(lambda: group.attempt(1).get("cause"), what="the successor closes the attempt")
    assert group.attempt(1)["cause"]["kind"] == "stopped"
    assert group.attempt(1)["cause"]["reason"] == "test-0 (node rank 0) is leaving: its pod is being stopped"


def test_a_bug_is_not_retried_for_ever_and_its_status_is_passed_on(make_group: MakeGroup) -> None:
    """Known failure A8: restarts are counted by progress."""
    group = make_group("fail", "0", "7", "100").start()
    assert [pod.wait() for pod in group.pods] == [7, 7]
    assert group.outcome()["state"] == "failed"
    assert group.outcome()["exit_code"] == 7
    assert group.attempt(3) == {}
    assert "two attempts in a row failed before their first step" in group.outcome()["reason"]


def test_an_attempt_that_gained_a_step_does_not_count_against_the_budget(make_group: MakeGroup) -> None:
    group = make_group("advance", "0", "7", nodes=1, attemptsWithoutProgress=1).start()
    until(lambda: group.attempt(4), what="a fourth attempt")
    assert group.outcome() == {}


def test_a_container_that_dies_again_and_again_is_not_retried_for_ever(make_group: MakeGroup) -> None:
    """Known failures A8, A22: running out of memory ends the container, the pod stays."""
    group = make_group("wait", attemptsWithoutProgress=3).start()
    for attempt in (1, 2):
        group.wait_for_workers(attempt, 2)
        group.pods[1].delete()
        group.pods[1].start(uid="uid-1-1")
    assert group.pods[0].wait() == contract.EXIT_NO_PROGRESS
    assert "closed its connection: its container ended by itself" in group.outcome()["reason"]
    assert group.attempt(2)["cause"]["kind"] == "container"


def test_a_container_that_is_back_before_the_others_have_stopped_counts_too(make_group: MakeGroup) -> None:
    group = make_group("stubborn", attemptsWithoutProgress=3, stopTimeout=3).start()
    for attempt in (1, 2):
        group.wait_for_workers(attempt, 2)
        group.pods[1].delete()
        group.pods[1].start(uid="uid-1-1")  # it joins while rank 0's worker still ignores SIGTERM
    assert group.pods[0].wait() == contract.EXIT_NO_PROGRESS
    assert group.attempt(1)["cause"]["kind"] == "container"
    assert "its container ended by itself" in group.outcome()["reason"]


def test_rank_0s_own_container_counts_alike(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1, attemptsWithoutProgress=3).start(uid="uid-0-1")
    for attempt in (1, 2):
        group.wait_for_workers(attempt, 1)
        group.pods[0].delete()
        group.pods[0].start(uid="uid-0-1")
    assert group.pods[0].wait() == contract.EXIT_NO_PROGRESS
    assert "rank 0's container ended by itself" in group.outcome()["reason"]


def test_lost_pods_do_not_count_against_the_budget(make_group: MakeGroup) -> None:
    group = make_group("wait", attemptsWithoutProgress=1).start()
    for attempt in (1, 2):
        group.wait_for_workers(attempt, 2)
        group.pods[1].delete()
        group.pods[1].start()
    group.wait_for_workers(3, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_a_member_that_freezes_is_dropped_and_refused_when_its_successor_is_there(make_group: MakeGroup) -> None:
    """Known failures A9, A16: no connection is closed, there is only silence; then the old pod comes back."""
    group = make_group("wait", heartbeatTimeout=SILENT_AFTER).start()
    group.wait_for_workers(1, 2)
    old = group.pods[1]
    assert old.process is not None
    old.process.send_signal(signal.SIGSTOP)
    until(lambda: "cause" in group.attempt(1), what="the silence is noticed")
    assert f"sent no heartbeat for {SILENT_AFTER} s" in group.attempt(1)["cause"]["reason"]
    new = type(old)(group, 1)
    group.pods.append(new)
    new.start(uid="uid-new")
    group.wait_for_workers(2, 2)
    old.process.send_signal(signal.SIGCONT)
    assert old.wait() == contract.EXIT_RANK0_UNREACHABLE
    assert "another pod has taken over node rank 1" in old.output
    group.release()
    assert (group.pods[0].wait(), new.wait()) == (0, 0)
    assert group.attempt(3) == {}


def test_a_machine_that_loses_its_power_is_not_taken_for_a_container_that_ended(make_group: MakeGroup) -> None:
    """Known failure A9: no connection is closed, and the same pod is back once the machine is."""
    group = make_group("wait", heartbeatTimeout=SILENT_AFTER).start()
    group.wait_for_workers(1, 2)
    process = group.pods[1].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    until(lambda: "cause" in group.attempt(1), what="the silence is noticed")
    group.pods[1].delete()
    group.pods[1].start(uid="uid-1-1")
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.attempt(1)["cause"]["kind"] == "pod"
    assert group.attempt(1)["cause"]["reason"].endswith(f"sent no heartbeat for {SILENT_AFTER} s")


def test_a_rank_0_that_freezes_is_noticed_and_its_workers_peers_stop(make_group: MakeGroup) -> None:
    """Known failure A5: the node of rank 0 is cut off, nothing is closed."""
    group = make_group("wait", heartbeatTimeout=SILENT_AFTER).start()
    first = group.wait_for_workers(1, 2)
    rank0 = group.pods[0].process
    assert rank0 is not None
    rank0.send_signal(signal.SIGSTOP)
    until(lambda: not alive(int(first[1]["pid"])), what="the survivor's worker stops")
    until(lambda: f"rank 0 sent no heartbeat for {SILENT_AFTER} s" in group.pods[1].output, what="the reason")
    group.pods[0].delete()
    group.pods[0].start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_a_full_volume_does_not_decide_what_the_group_does(make_group: MakeGroup) -> None:
    group = make_group("fail", "0", "7", "100", nodes=1)
    group.state_dir.mkdir(parents=True)
    # Every record fails, as on a full volume: a file stands where its folder should be.
    (group.state_dir / contract.ATTEMPTS_DIR).write_text("")
    assert group.start().pods[0].wait() == 7
    assert "going on without" in group.pods[0].output
    assert group.outcome()["state"] == "failed"


def test_a_member_that_comes_after_the_end_is_told_how_it_ended(make_group: MakeGroup) -> None:
    group = make_group("wait")
    rank0 = group.pods[0].start(RANKZERO_WORKLOAD="StatefulSet/test", RANKZERO_NAMESPACE="default")
    group.pods[1].start()
    group.wait_for_workers(1, 2)
    group.release()
    assert group.pods[1].wait() == 0
    assert rank0.process is not None
    assert rank0.process.poll() is None  # it waits to be scaled to 0, and there is no API here
    assert group.pods[1].start().wait() == 0
    rank0.terminate()
    assert rank0.wait() == 0


def test_a_wrong_setting_found_by_the_script_is_not_retried(make_group: MakeGroup) -> None:
    group = make_group("fail", "0", str(contract.EXIT_USAGE), "100", nodes=1).start()
    assert group.pods[0].wait() == contract.EXIT_USAGE
    assert group.attempt(2) == {}


def test_a_failed_run_is_tried_again_in_a_new_pod_with_a_fresh_budget(make_group: MakeGroup) -> None:
    group = make_group("fail", "0", "7", "1", nodes=1, attemptsWithoutProgress=1).start()
    assert group.pods[0].wait() == 7
    group.pods[0].start(uid="uid-0-1")  # only the container was started again: nobody asked for another try
    assert group.pods[0].wait() == 7
    assert group.attempt(2) == {}
    group.pods[0].start()
    group.wait_for_workers(2, 1)
    assert group.outcome() == {}
    group.release()
    assert group.pods[0].wait() == 0
    assert group.outcome()["state"] == "succeeded"


def test_workers_and_their_children_are_gone_after_a_stop_even_when_they_ignore_sigterm(make_group: MakeGroup) -> None:
    """Known failure A24: data loader workers and their like must not survive their attempt."""
    group = make_group("stubborn", nodes=1, stopTimeout=1).start()
    worker = group.wait_for_workers(1, 1)[0]
    group.pods[0].terminate()
    assert group.pods[0].wait() == contract.EXIT_REQUEUE
    assert not alive(int(worker["pid"]))
    assert not alive(int(worker["child"]))


def test_a_pod_that_never_comes_ends_the_run_with_a_reason(make_group: MakeGroup) -> None:
    group = make_group("wait", rank0Timeout=1)
    group.pods[0].start()
    assert group.pods[0].wait() == contract.EXIT_RANK0_UNREACHABLE
    assert group.outcome()["reason"] == "node rank 1 did not join within 1 s"


def test_rank_0_says_on_its_status_page_who_is_missing(make_group: MakeGroup) -> None:
    group = make_group("wait")
    pod = group.pods[0].start()
    until(lambda: pod.status().get("group", {}).get("absent") == [1], what="only node rank 1 is missing")


def test_a_member_says_on_its_status_page_what_it_waits_for(make_group: MakeGroup) -> None:
    """Known failure A1: the name resolves, nothing listens."""
    group = make_group("wait")
    pod = group.pods[1].start()
    until(lambda: "does not listen yet" in pod.status().get("waiting_for", ""), what="the reason")


def test_strangers_on_the_port_are_dropped_and_the_group_goes_on(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1).start()
    group.wait_for_workers(1, 1)
    for bad in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b'{"type": "Hello"}\n', b"x" * 100_000 + b"\n", b"", b"[]\n"):
        with socket.create_connection(("localhost", group.launch["rendezvousPort"]), timeout=PATIENCE) as stranger:
            stranger.sendall(bad)
            stranger.shutdown(socket.SHUT_WR)
            assert drained(stranger) == b""
    group.release()
    assert group.pods[0].wait() == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run": "default/other/main"}, "it belongs to another run"),
        ({"config_hash": "other"}, "its settings differ from those of rank 0"),
        ({"code": "other"}, "its code in"),
        ({"node_rank": 5}, "node rank 5 in a group of 2"),
        ({"version": 99, "more": "that is not known here"}, "it speaks protocol 99"),
    ],
)
def test_a_member_that_does_not_belong_here_is_refused_with_the_reason(
    make_group: MakeGroup, change: dict[str, Any], reason: str
) -> None:
    group = make_group("wait")
    group.pods[0].start()
    until(lambda: group.pods[0].status().get("state") == "joined", what="rank 0 is up")
    good = Hello(
        VERSION,
        "default/test/main",
        1,
        "x",
        pod_uid="x",
        boot="x",
        node_name="x",
        config_hash="",
        code="",
        last_words="",
    )
    with socket.create_connection(("localhost", group.launch["rendezvousPort"]), timeout=PATIENCE) as member:
        member.sendall(json.dumps({"type": "Hello", **vars(good), **change}).encode() + b"\n")
        answer = json.loads(drained(member))
    assert answer["type"] == "Refused"
    assert reason in answer["reason"]


def test_a_new_pod_takes_over_and_the_old_one_is_refused(make_group: MakeGroup) -> None:
    """Known failure A16: two pods with one rank."""
    group = make_group("wait").start()
    group.wait_for_workers(1, 2)
    old = group.pods[1]
    new = type(old)(group, 1)
    group.pods.append(new)
    new.start(uid="uid-new")
    group.wait_for_workers(2, 2)
    assert old.wait() == contract.EXIT_RANK0_UNREACHABLE
    assert "another pod has taken over node rank 1" in old.output
    group.release()
    assert (group.pods[0].wait(), new.wait()) == (0, 0)


def test_the_launcher_stays_small_and_never_imports_torch(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1).start()
    group.wait_for_workers(1, 1)
    process = group.pods[0].process
    assert process is not None
    proc = Path("/proc", str(process.pid))
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    assert int(status["VmRSS"].split()[0]) < 60 * 1024
    assert "torch" not in (proc / "maps").read_text()


def drained(connection: socket.socket) -> bytes:
    """All that the other end sends until it closes; a reset counts as a close."""
    received = b""
    try:
        while chunk := connection.recv(4096):
            received += chunk
            if received.endswith(b"\n"):
                break
    except ConnectionResetError:
        pass
    return received
