"""How a training script ends; each case is a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rankzero import contract


def end_with(body: str) -> subprocess.CompletedProcess[str]:
    code = f"from rankzero import errors\nfrom rankzero.train import entry\ndef main():\n    {body}\nentry.run(main)\n"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("error", "status"), [("ConfigError", contract.EXIT_USAGE), ("DataError", 1), ("CheckpointError", 1)]
)
def test_an_error_of_ours_is_a_sentence_with_its_fix_and_its_own_status(error: str, status: int) -> None:
    done = end_with(f"raise errors.{error}('it is wrong', hint='make it right')")
    assert done.returncode == status
    assert done.stderr == f"{error}: it is wrong\n  fix: make it right\n"


def test_any_other_exception_stays_a_traceback() -> None:
    done = end_with("raise ValueError('bad batch')")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ValueError: bad batch\n")


@pytest.mark.parametrize(("body", "status"), [("pass", 0), ("raise SystemExit(7)", 7)])
def test_an_end_by_its_own_will_is_left_alone(body: str, status: int) -> None:
    done = end_with(body)
    assert (done.returncode, done.stderr) == (status, "")
