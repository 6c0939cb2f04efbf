"""How the command ends, and what it leaves for `kubectl describe pod`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankzero import cli, contract
from rankzero.errors import RankzeroError
from rankzero.launch import main as launcher


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The launcher keeps stop signals back from its first line on; here it shares its process with other tests."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture
def termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(contract, "TERMINATION_LOG", str(path))
    return path


def status_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_a_bug_of_the_launcher_is_a_sentence_a_traceback_and_the_status_for_it(
    termination_log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stumble(_: str) -> int:
        raise KeyError("no such key")

    monkeypatch.setattr(launcher, "launch", stumble)
    assert status_of("launch") == contract.EXIT_INTERNAL
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in stumble" in said
    assert "rankzero: the launcher failed by a bug of its own: KeyError: 'no such key'\n  fix: " in said
    assert termination_log.read_text().startswith("the launcher failed by a bug of its own: KeyError")


def test_a_wrong_setting_is_a_sentence_without_a_traceback_and_status_64(
    termination_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("launch: {script: a.py, nodes: 0}")
    assert status_of("launch", "--config", str(config)) == contract.EXIT_USAGE
    said = capsys.readouterr().err
    assert said.startswith("rankzero: ")
    assert "launch.nodes is 0" in said
    assert "Traceback" not in said
    assert "launch.nodes is 0" in termination_log.read_text()


def test_every_error_of_ours_has_a_status_that_is_not_success() -> None:
    def family(of: type[RankzeroError]) -> list[type[RankzeroError]]:
        return [of, *(member for child in of.__subclasses__() for member in family(child))]

    assert all(0 < error.exit_code < 126 for error in family(RankzeroError))
