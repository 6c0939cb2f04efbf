"""Copies of checkpoints in an object store, obstore's own of files here: one process."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.config import CheckpointConfig, ResumeConfig
from rankzero.errors import CheckpointError, ConfigError
from rankzero.train.checkpoint import Checkpoints, mirror
from rankzero.transfer import Transfers
from tests.trainer.checkpoint.scene import COMMON_FILE, DATA_FILE, METADATA_FILE, resumed, save_steps, tracked
from tests.waiting import until

pytestmark = pytest.mark.slow  # each transfer is a process of its own

FILES = {DATA_FILE, COMMON_FILE, METADATA_FILE, contract.MANIFEST_FILE}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The run's state directory."""
    return tmp_path / "mnist"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The run's folder in the store."""
    return tmp_path / "store" / "mnist"


@pytest.fixture
def url(store: Path) -> str:
    """What train.checkpoint.mirror says."""
    return f"file://{store.parent}"


def steps(store: Path) -> list[str]:
    """What is there, whole or not."""
    return sorted(path.name for path in store.glob("step-*"))


def saved_one_by_one(volume: Path, url: str, *numbers: int, **settings: Any) -> None:
    """Each is copied before the next one is saved."""
    for number in numbers:
        checkpoints, model = tracked(volume, mirror=url, **settings)
        model.value = number
        checkpoints.save(number)
        checkpoints.close()


class Gate:
    """Holds uploads up until it is opened, or nobody waits for them any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.begun = threading.Event(), threading.Event()
        run = Transfers.run

        def held(transfers: Transfers, job: str, url: str, **arguments: Any) -> tuple[Any, str]:
            if job == "upload":
                self.begun.set()
                until(lambda: self.opened.is_set() or transfers._is_ended, timeout=120, what="the store's answer")
            return run(transfers, job, url, **arguments)

        monkeypatch.setattr(Transfers, "run", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A slow store."""
    gate = Gate(monkeypatch)
    yield gate
    gate.opened.set()


def test_copies_are_the_same_files_older_ones_go_and_what_else_lies_there_stays(
    volume: Path, store: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("step-mine", "notes", "step-0000000007"):
        (store / name).mkdir(parents=True)
        (store / name / "file").touch()
    saved_one_by_one(volume, url, 1, 2, 3, keep=2)
    assert steps(store) == ["step-0000000002", "step-0000000003", "step-mine"]  # 7 was no whole one
    assert (store / "notes" / "file").exists()
    for copy in store.glob("step-0*"):
        assert {path.name for path in copy.iterdir()} == FILES
        for path in copy.iterdir():
            assert path.read_bytes() == (volume / contract.CHECKPOINTS_DIR / copy.name / path.name).read_bytes()
    assert json.loads((store / contract.LATEST_FILE).read_text()) == {"checkpoint": "step-0000000003", "step": 3}
    assert f"checkpoints are copied to {url}/mnist, that of step 1 was the first" in capsys.readouterr().out


def test_the_best_one_stays_in_the_store_too(volume: Path, store: Path, url: str) -> None:
    for number, metric in enumerate((0.5, 0.1, 0.9), start=1):
        checkpoints, _ = tracked(volume, mirror=url, keep=1, best="lowest")
        checkpoints.save(number, metric=metric)
        checkpoints.close()
    assert steps(store) == ["step-0000000002", "step-0000000003"]


@pytest.mark.parametrize("local", [False, True])
def test_where_the_volume_is_lost_the_run_goes_on_from_the_newest_copy(
    volume: Path, url: str, tmp_path: Path, local: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        "mirror": url,
        "local_path": str(tmp_path / "disk") if local else "",
        "asynchronous": local,
    }
    save_steps(volume, 1, 2, **settings)
    shutil.rmtree(volume)
    checkpoints, model = tracked(volume, **settings)
    assert (checkpoints.resume(), model.value) == (2, 2.0)
    assert [(path.name, checkpoints.verify(path)) for path in checkpoints] == [("step-0000000002", "")]
    assert f"checkpoint step-0000000002 of {url}/mnist has been fetched" in capsys.readouterr().out
    checkpoints.close()
    assert resumed(volume) == (2, 2.0)


def test_two_runs_of_one_store_do_not_meet(
    volume: Path, store: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (contract.ENV_NAMESPACE, contract.ENV_RUN_NAME, contract.ENV_RUN_ID):
        monkeypatch.setenv(name, "first")
    save_steps(volume, 1, mirror=url)
    monkeypatch.setenv(contract.ENV_RUN_ID, "second")
    assert resumed(volume.with_name("other"), mirror=url) == (0, 0.0)
    assert [path.name for path in store.parent.iterdir() if any(path.iterdir())] == ["first_first_first"]


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES = [
    (lambda copy: flipped(copy / DATA_FILE), f"{DATA_FILE} does not match its checksum"),
    (lambda copy: (copy / COMMON_FILE).write_bytes(b"x"), f"{COMMON_FILE} has 1 bytes, not "),
    (lambda copy: (copy / METADATA_FILE).unlink(), f"{METADATA_FILE} is missing"),
    (lambda copy: (copy / contract.MANIFEST_FILE).write_text("{"), "its manifest cannot be read"),
    (lambda copy: (copy / contract.MANIFEST_FILE).write_text('{"format": 1, "files": {}}'), "its format is 1"),
    (
        lambda copy: (copy / contract.MANIFEST_FILE).write_text('{"format": 2, "files": {"../x": {"size": 1}}}'),
        "its manifest names no files of its own",
    ),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_a_damaged_copy_is_named_and_the_one_before_it_is_taken(
    volume: Path, store: Path, url: str, damage: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_one_by_one(volume, url, 1, 2)
    shutil.rmtree(volume)
    damage(store / "step-0000000002")
    assert resumed(volume, mirror=url) == (1, 1.0)
    told = capsys.readouterr().out
    assert f"checkpoint step-0000000002 of {url}/mnist is left out: " in told
    assert said in told
    assert sorted(path.name for path in (volume / contract.CHECKPOINTS_DIR).glob("*step*")) == ["step-0000000001"]


def test_a_run_whose_copies_are_all_damaged_does_not_begin_anew(volume: Path, store: Path, url: str) -> None:
    save_steps(volume, 1, mirror=url)
    shutil.rmtree(volume)
    flipped(store / "step-0000000001" / DATA_FILE)
    with pytest.raises(CheckpointError, match=r"none of the checkpoints in file.* can be used: step-0000000001"):
        resumed(volume, mirror=url)
    (store / "step-0000000001" / contract.MANIFEST_FILE).unlink()  # half deleted: that is none
    assert resumed(volume, mirror=url) == (0, 0.0)


def test_none_is_refused_where_the_store_has_copies_that_the_next_would_replace(volume: Path, url: str) -> None:
    save_steps(volume, 1, mirror=url)
    shutil.rmtree(volume)
    with pytest.raises(ConfigError, match=r"train\.resume\.from is none, but this run has checkpoints \(file://"):
        resumed(volume, mirror=url, resume=ResumeConfig(from_="none"))


def test_a_store_that_cannot_be_asked_does_not_make_a_run_begin_anew(volume: Path, store: Path, url: str) -> None:
    store.parent.write_text("a file")
    with pytest.raises(CheckpointError, match="cannot look for checkpoints in file://"):
        resumed(volume, mirror=url)


@pytest.mark.parametrize("name", ["", "/step-0000000001"])
def test_a_url_says_where_another_run_begins_and_what_was_fetched_goes_with_its_first_save(
    volume: Path, url: str, name: str
) -> None:
    save_steps(volume, 1, mirror=url)
    other = volume.with_name("other")
    source = ResumeConfig(from_=f"{url}/mnist{name}", parts=("model",))
    checkpoints, model = tracked(other, resume=source)
    assert (checkpoints.resume(), model.value) == (0, 1.0)
    assert list(checkpoints) == []
    checkpoints.save(5)
    assert [path.name for path in checkpoints.layout.folder.glob("*step*")] == ["step-0000000005"]
    assert resumed(other, resume=source) == (5, 1.0)  # the run's own


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("nothing", None, "cannot look for checkpoints in .*/nothing: "),
        ("mnist/step-0000000009", None, r"step-0000000009 has no MANIFEST\.json"),
        ("empty", lambda store: (store.parent / "empty").mkdir(), r"no step-\*/MANIFEST\.json is below it"),
        (
            "mnist",
            lambda store: flipped(store / "step-0000000001" / COMMON_FILE),
            "state.pt does not match its checksum",
        ),
    ],
)
def test_a_url_without_a_checkpoint_to_trust_is_refused_by_name(
    volume: Path, store: Path, url: str, name: str, damage: Any, said: str
) -> None:
    save_steps(volume, 1, mirror=url)
    if damage:
        damage(store)
    with pytest.raises((ConfigError, CheckpointError), match=said):
        resumed(volume.with_name("other"), resume=ResumeConfig(from_=f"{url}/{name}"))


def test_a_slow_store_holds_nothing_up_the_newest_is_copied_and_those_passed_over_are_named(
    volume: Path, store: Path, url: str, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, model = tracked(volume, mirror=url, keep=1)
    checkpoints.save(1)
    assert gate.begun.wait(120)
    for step in (2, 3, 4):
        model.value = step
        checkpoints.save(step)
    assert [path.name for path in checkpoints] == ["step-0000000004", "step-0000000001"]  # the one that is being read
    assert not list(store.glob("*/MANIFEST.json"))
    gate.opened.set()
    checkpoints.close()
    assert steps(store) == ["step-0000000004"]
    said = capsys.readouterr().out
    assert [number for number in range(1, 5) if f"of step {number} is not copied to {url}/mnist: " in said] == [2, 3]


def test_a_copy_that_fails_is_said_training_goes_on_and_the_next_one_is_copied(
    volume: Path, store: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, _ = tracked(volume, mirror=url)
    store.parent.write_text("in the way")
    checkpoints.save(1)
    checkpoints.close()
    said = capsys.readouterr().out
    assert f"warning: the checkpoint of step 1 was not copied to {url}/mnist: " in said
    assert "Not a directory" in said or "File exists" in said
    store.parent.unlink()
    checkpoints.save(2)
    checkpoints.close()
    assert steps(store) == ["step-0000000002"]


def test_damage_in_the_runs_folder_never_gets_into_the_store(
    volume: Path, store: Path, url: str, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, _ = tracked(volume, mirror=url)
    checkpoints.save(1)
    assert gate.begun.wait(120)
    flipped(checkpoints.layout.path(1) / DATA_FILE)
    gate.opened.set()
    checkpoints.close()
    assert f"{DATA_FILE} does not match its checksum" in capsys.readouterr().out
    assert not (store / "step-0000000001" / DATA_FILE).exists()
    assert not (store / "step-0000000001" / contract.MANIFEST_FILE).exists()


@pytest.mark.parametrize("ending", [SystemExit(contract.EXIT_REQUEUE), ZeroDivisionError()])
def test_a_process_that_is_stopped_or_fails_does_not_wait_for_the_store_and_the_next_attempt_copies_what_is_missing(
    volume: Path,
    store: Path,
    url: str,
    gate: Gate,
    ending: BaseException,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoints, model = tracked(volume, mirror=url)
    model.value = 1

    def stopped(checkpoints: Checkpoints) -> None:
        with checkpoints:
            checkpoints.save(1, wait=True)
            assert gate.begun.wait(120)
            raise ending

    with pytest.raises(type(ending)):
        stopped(checkpoints)
    assert f"of step 1 is not in {url}/mnist yet: a later attempt copies it" in capsys.readouterr().out
    assert not list(store.glob("*/MANIFEST.json"))
    gate.opened.set()
    again, model = tracked(volume, mirror=url)
    assert (again.resume(), model.value) == (1, 1.0)
    again.close()
    shutil.rmtree(volume)
    assert resumed(volume, mirror=url) == (1, 1.0)


def test_a_script_that_ends_well_by_exit_has_its_last_copy(volume: Path, store: Path, url: str) -> None:
    checkpoints, _ = tracked(volume, mirror=url)

    def script() -> None:
        with checkpoints:
            checkpoints.save(1)
            sys.exit()

    with pytest.raises(SystemExit):
        script()
    assert (store / "step-0000000001" / contract.MANIFEST_FILE).exists()


def test_the_end_of_a_run_waits_for_the_store_no_longer_than_it_says(
    volume: Path, url: str, gate: Gate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mirror, "FINISH_WITHIN", 0.1)
    checkpoints, _ = tracked(volume, mirror=url)
    checkpoints.save(1)
    assert gate.begun.wait(120)
    checkpoints.close()
    said = capsys.readouterr().out
    assert f"the last checkpoint is copied to {url}/mnist: 0 minutes at most" in said
    assert "is not in" in said


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("s3://AKIA:word@bucket/x", "holds a user name, key or query"),
        ("az://container/x?sig=word", "holds a user name, key or query"),
        ("/checkpoints", "is /checkpoints"),
        ("s3:///x", "is s3:///x"),
        ("http://example.com/x", "is http://example.com/x"),
        ("file://host/x", "is file://host/x"),
    ],
)
def test_a_mirror_that_is_no_url_of_a_store_is_refused_and_credentials_are_not_repeated(bad: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"train\.checkpoint\.mirror") as found:
        CheckpointConfig(mirror=bad)
    assert said in found.value.message
    assert "word" not in str(found.value)
    if "://" in bad:
        with pytest.raises(ConfigError, match=r"train\.resume\.from"):
            ResumeConfig(from_=bad)
