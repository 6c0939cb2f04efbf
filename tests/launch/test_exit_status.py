"""Exit statuses as the controllers of the pods read them: what is replaced, what has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankzero import contract
from rankzero.launch import exit_status
from rankzero.launch.records import Records

CODES = range(256)
REPLACED = {*contract.POD_ENDS_RUN_GOES_ON, *contract.POD_FAILED}


@pytest.mark.parametrize("kind", ["Job", "TrainJob"])
def test_a_job_replaces_no_pod_of_a_run_that_has_ended(kind: str) -> None:
    """Known failure A8: whatever its worker ended with, a run that is over is not begun again."""
    assert not REPLACED & {exit_status.of_ended_run(kind, code) for code in CODES}


def test_the_operator_of_a_pytorchjob_replaces_no_pod_of_a_run_that_has_ended() -> None:
    assert max(exit_status.of_ended_run("PyTorchJob", code) for code in CODES) < 128


@pytest.mark.parametrize("kind", contract.WORKLOAD_KINDS)
def test_success_stays_success_and_a_failure_one(kind: str) -> None:
    assert [code for code in CODES if exit_status.of_ended_run(kind, code) == 0] == [0]
    assert [code for code in CODES if exit_status.of_pod(kind, code) == 0] == [0]


@pytest.mark.parametrize("kind", contract.WORKLOAD_KINDS)
@pytest.mark.parametrize("code", [1, 7, contract.EXIT_USAGE, contract.EXIT_DO_NOT_RETRY, contract.EXIT_NO_PROGRESS])
def test_the_code_of_a_worker_that_failed_is_passed_on(kind: str, code: int) -> None:
    assert exit_status.of_ended_run(kind, code) == exit_status.of_pod(kind, code) == code


@pytest.mark.parametrize("code", sorted(REPLACED))
def test_a_pod_that_is_to_be_replaced_says_so_in_the_words_of_its_controller(code: int) -> None:
    assert exit_status.of_pod("Job", code) == exit_status.of_pod("TrainJob", code) == code
    assert exit_status.of_pod("PyTorchJob", code) >= 128
    assert exit_status.of_pod("StatefulSet", code) == exit_status.of_pod("", code) == code


@pytest.mark.parametrize("code", [contract.EXIT_PREFLIGHT, contract.EXIT_INTERNAL])
def test_node_rank_0_of_a_pytorchjob_asks_for_no_new_pod_before_its_first_attempt(code: int, tmp_path: Path) -> None:
    """Its operator has no limit, and nobody has begun to count."""
    environ = {
        contract.ENV_WORKLOAD: "PyTorchJob/train",
        contract.ENV_STATE_ROOT: str(tmp_path),
        contract.ENV_RUN_NAME: "train",
        contract.ENV_RUN_ID: "main",
        contract.ENV_NODE_RANK: "0",
        contract.ENV_FIRST_NODE_RANK: "0",
    }
    assert exit_status.of_error(environ, code) == code
    assert exit_status.of_error({**environ, contract.ENV_FIRST_NODE_RANK: "1"}, code) == contract.EXIT_REPLACE
    assert exit_status.of_error(environ, contract.EXIT_RANK0_UNREACHABLE) == contract.EXIT_REPLACE
    records = Records(tmp_path / "train/main", "train", "main", "uid")
    records.load({})
    records.open_attempt([{"node_rank": 0, "uid": "uid"}])
    records.save()
    assert exit_status.of_error(environ, code) == contract.EXIT_REPLACE
    assert exit_status.of_error({**environ, contract.ENV_WORKLOAD: "Job/train"}, code) == code


def test_every_code_of_the_launcher_is_one_of_the_two() -> None:
    """A new one has to be put on a side: the end of the run, or of this pod."""
    codes = {value for name, value in vars(contract).items() if name.startswith("EXIT_")}
    ends_run = {
        contract.EXIT_OK, contract.EXIT_USAGE, contract.EXIT_DO_NOT_RETRY, contract.EXIT_NO_PROGRESS,
    }  # fmt: skip
    of_diff = {contract.EXIT_DIFFERENT, contract.EXIT_NOT_BY_UPGRADE}
    assert codes == ends_run | of_diff | {code for code in REPLACED if code < 128} | {contract.EXIT_REPLACE}
