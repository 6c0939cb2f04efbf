"""``launch.method: torchrun``: real torchrun, real gloo groups, and the records of the direct method."""

from __future__ import annotations

import json
import os
import signal
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args

from rankzero import contract
from rankzero.launch.torchrun import Failure, FailureReport, command
from tests.launch.conftest import MakeGroup
from tests.launch.pods import SCRIPT as SCRIPT_WITHOUT_TORCH
from tests.launch.pods import PodGroup, alive, descendants
from tests.waiting import until

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).with_name("gloo_worker.py"))
ENVIRONMENT = {
    "TORCHELASTIC_RUN_ID": "test-main-1", "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20000",
}  # fmt: skip


def start(make_group: MakeGroup, *args: str, **launch: Any) -> PodGroup:
    launch = {"method": "torchrun", "script": SCRIPT, "heartbeatTimeout": 30, "saveTimeout": 30, **launch}
    return make_group(*args, nodes=2, procs=2, **launch).start()


def torchrun_of(group: PodGroup, node_rank: int) -> int:
    """The pid of a pod's torchrun."""
    process = group.pods[node_rank].process
    assert process is not None
    for pid in descendants(process.pid):
        if b"torch.distributed.run" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"pod {node_rank} has no torchrun")


def finish(group: PodGroup, attempt: int) -> None:
    """Let the attempt run to the end of the run."""
    until(lambda: len(group.workers(attempt)) == 4, what=f"4 workers of attempt {attempt}")
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.outcome()["state"] == "succeeded"
    assert group.attempt(attempt)["cause"] is None


def test_a_worker_that_fails_is_recorded_with_its_code_and_the_next_attempt_finishes(make_group: MakeGroup) -> None:
    """torchrun itself ends with status 1 whatever happened (known failures A4, A8, A25)."""
    group = start(make_group, "exit", "3", "7")
    until(lambda: "cause" in group.attempt(1), what="the end of attempt 1")
    finish(group, attempt=2)
    failure = group.attempt(1)["cause"]["failure"]
    assert (failure["rank"], failure["local_rank"], failure["node_rank"]) == (3, 1, 1)
    assert (failure["exit_code"], failure["signal"]) == (7, "")
    assert failure["error"] == "RuntimeError: as the test asked"
    assert failure["last_lines"] == ["line of rank 3", "RuntimeError: as the test asked"]
    assert "[attempt 1 torchrun] " in group.pods[1].output
    for rank, environment in group.workers(1).items():
        log = (group.state_dir / contract.log_file(1, rank)).read_text()
        assert f"[attempt 1 rank {rank}] line of rank {rank}\n" in log
        assert environment["MASTER_PORT"] == group.workers(1)[0]["MASTER_PORT"] != group.workers(2)[0]["MASTER_PORT"]
        assert environment["TORCHELASTIC_MAX_RESTARTS"] == "0"
        assert environment["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    assert "the warm spare is not used" in group.pods[0].output


def test_workers_of_a_torchrun_that_was_killed_are_gone_and_the_group_goes_on(make_group: MakeGroup) -> None:
    """Known failure A5. torchrun's workers lead sessions of their own and would outlive it."""
    group = start(make_group, "wait", script=str(SCRIPT_WITHOUT_TORCH))
    until(lambda: len(group.workers(1)) == 4, what="4 workers")
    first = group.workers(1)
    os.kill(torchrun_of(group, 1), signal.SIGKILL)
    until(lambda: "cause" in group.attempt(1), what="the end of attempt 1")
    assert not [rank for rank, worker in first.items() if alive(int(worker["pid"]))]
    assert "was ended by SIGKILL: torchrun itself" in group.attempt(1)["cause"]["reason"]
    finish(group, attempt=2)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_that_was_killed_is_recorded_with_its_signal(make_group: MakeGroup) -> None:
    group = start(make_group, "wait")
    until(lambda: len(group.workers(1)) == 4, what="4 workers")
    os.kill(int(group.workers(1)[1]["pid"]), signal.SIGKILL)
    until(lambda: "cause" in group.attempt(1), what="the end of attempt 1")
    failure = group.attempt(1)["cause"]["failure"]
    assert (failure["rank"], failure["exit_code"], failure["signal"]) == (1, 137, "SIGKILL")
    finish(group, attempt=2)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_error_that_record_wrote_is_in_the_failure_record(make_group: MakeGroup) -> None:
    group = start(make_group, "raise", "0")
    until(lambda: "cause" in group.attempt(1), what="the end of attempt 1")
    failure = group.attempt(1)["cause"]["failure"]
    assert (failure["rank"], failure["exit_code"], failure["error"]) == (0, 1, "ValueError: as the test asked")
    finish(group, attempt=2)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_wrong_setting_found_by_the_script_is_not_retried(make_group: MakeGroup) -> None:
    group = start(make_group, "exit", "2", str(contract.EXIT_USAGE))
    assert [pod.wait() for pod in group.pods] == [contract.EXIT_USAGE] * 2
    assert group.attempt(2) == {}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_all_ranks_save_after_the_same_step_when_a_pod_is_stopped(make_group: MakeGroup, tmp_path: Path) -> None:
    """Known failure A24."""
    group = start(make_group, "save")
    until(lambda: len(group.workers(1)) == 4, what="4 workers")
    group.pods[1].terminate()
    assert group.pods[1].wait() == contract.EXIT_REQUEUE
    until(lambda: "cause" in group.attempt(1), what="the end of attempt 1")
    assert group.attempt(1)["cause"]["kind"] == "stopped"
    assert len({(tmp_path / f"saved-{rank}").read_text() for rank in range(4)}) == 1
    assert not [rank for rank, worker in group.workers(1).items() if alive(int(worker["pid"]))]
    group.pods[1].start()
    finish(group, attempt=2)


def test_torchrun_reads_what_it_is_given_as_meant(tmp_path: Path) -> None:
    read: Namespace = parse_args(  # type: ignore[no-untyped-call]
        command(["/train.py", "--nnodes", "9"], ENVIRONMENT, tmp_path, stop_timeout=20)[2:]
    )
    assert (read.nnodes, read.node_rank, read.nproc_per_node, read.max_restarts) == ("2", 1, "4", 0)
    assert (read.rdzv_backend, read.master_addr, read.master_port) == ("static", "10.0.0.1", 20000)
    assert read.shutdown_timeout == 18  # ends before the launcher's SIGKILL
    assert read.training_script_args == ["/train.py", "--nnodes", "9"]


def test_an_ipv6_address_is_given_to_torchrun_in_brackets(tmp_path: Path) -> None:
    """Known failure A20."""
    arguments = command(["/train.py"], {**ENVIRONMENT, "MASTER_ADDR": "fd00::1"}, tmp_path, stop_timeout=1)
    assert "--master-addr=[fd00::1]" in arguments
    assert "--shutdown-timeout=1" in arguments


def read_report(*failures: ProcessFailure) -> list[Failure]:
    """What is read from the report that torch itself makes of these failures (by local rank, on node rank 1)."""
    report = FailureReport("torchrun")
    text = str(ChildFailedError("train.py", {4 + failure.local_rank: failure for failure in failures}))
    report.write(text.encode())
    return report.failures


def test_the_cause_stands_last_in_torchruns_report(tmp_path: Path) -> None:
    error = tmp_path / "error.json"
    details = {"timestamp": "5", "py_callstack": "Traceback\nValueError: x"}
    error.write_text(json.dumps({"message": {"message": "ValueError: x", "extraInfo": details}}))
    followers = [ProcessFailure(local, 100 + local, -15, "") for local in (0, 2)]
    found = read_report(followers[0], ProcessFailure(1, 101, 7, str(error)), followers[1])
    assert found[-1] == Failure(rank=5, local_rank=1, exitcode=7)
    assert {failure.rank for failure in found} == {4, 5, 6}


def test_an_end_by_a_signal_is_read_with_its_number() -> None:
    assert read_report(ProcessFailure(0, 9, -11, "")) == [Failure(rank=4, local_rank=0, exitcode=-11)]
