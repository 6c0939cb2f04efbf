"""Members with different code never train together, whatever brought it into their pods."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
import yaml

from rankzero.config import LaunchConfig
from rankzero.launch import code, joining, reach, roster
from rankzero.launch import identity as identities
from rankzero.launch.joining import Joining
from rankzero.launch.ports import free_port
from rankzero.launch.roster import Roster
from tests.launch.conftest import MakeGroup
from tests.launch.pods import SCRIPT
from tests.waiting import PATIENCE, until


def script(folder: Path, text: str = "print(1)") -> str:
    folder.mkdir()
    (folder / "train.py").write_text(text)
    (folder / "model.py").write_text("x = 1")
    return str(folder / "train.py")


def fingerprint(path: str) -> str:
    return code.fingerprint(LaunchConfig(path))


def test_the_same_files_in_other_folders_have_one_name_and_a_changed_one_has_another(tmp_path: Path) -> None:
    one, two = script(tmp_path / "one"), script(tmp_path / "two")
    assert fingerprint(one) == fingerprint(two)
    (tmp_path / "two" / "data.txt").write_text("no code")
    assert fingerprint(one) == fingerprint(two)
    (tmp_path / "two" / "model.py").write_text("x = 2")
    assert fingerprint(one) != fingerprint(two)


def test_packages_below_the_script_are_compared_and_what_a_run_leaves_there_is_not(tmp_path: Path) -> None:
    one, two = script(tmp_path / "one"), script(tmp_path / "two")
    for at, lines in ((tmp_path / "one", 1), (tmp_path / "two", 2)):
        put(at / "wandb/run-1/files/train.py", f"x = {lines}")
        put(at / f"..2026_11_30.{lines}/train.py", "a ConfigMap's own")
        put(at / "__pycache__/model.cpython-311.pyc", str(lines))
    assert fingerprint(one) == fingerprint(two)
    for folder in ("one", "two"):
        put(tmp_path / folder / "team/models/gpt.py", "width = 1")
        put(tmp_path / folder / "team/__init__.py", "")
    same = fingerprint(one)
    assert same == fingerprint(two)
    put(tmp_path / "two/team/models/gpt.py", "width = 2")
    assert same == fingerprint(one) != fingerprint(two)


def test_a_folder_of_data_is_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MOST_ENTRIES", 4)
    one = script(tmp_path / "one")
    for name in "abc":
        put(tmp_path / "one/data" / f"{name}.py", "1")
    before = fingerprint(one)
    put(tmp_path / "one/data/d.py", "1")
    put(tmp_path / "one/data/a.py", "2")
    assert fingerprint(one) != before, "it had been looked through"
    too_many = fingerprint(one)
    put(tmp_path / "one/data/a.py", "3")
    assert fingerprint(one) == too_many


def test_another_commit_is_other_code_and_a_branch_says_nothing(tmp_path: Path) -> None:
    """A tag that was moved between the starts of two pods, where what it changed is no Python file."""
    one, two = script(tmp_path / "one"), script(tmp_path / "two")
    put(tmp_path / "one/.git/HEAD", "ref: refs/heads/main\n")
    assert fingerprint(one) == fingerprint(two)
    for folder, digit in (("one", "a"), ("two", "b")):
        put(tmp_path / folder / ".git/HEAD", digit * 40 + "\n")
    assert fingerprint(one) != fingerprint(two)


def test_a_program_is_compared_by_its_working_directory_unless_that_is_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = LaunchConfig(command=("python", "-m", "team.train"))
    put(tmp_path / "train.py", "1")
    monkeypatch.chdir(tmp_path)
    before = code.fingerprint(program)
    put(tmp_path / "train.py", "2")
    assert code.fingerprint(program) != before
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert code.fingerprint(program) == ""


def test_a_script_of_another_kind_is_compared_too(tmp_path: Path) -> None:
    names = set()
    for text in ("1", "2"):
        (tmp_path / "train").write_text(text)
        names.add(fingerprint(str(tmp_path / "train")))
    assert len(names) == 2


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def joins(launch: LaunchConfig, said: list[str]) -> float:
    """Seconds until the real two sides have taken a pod in, with the greetings on a real connection."""
    identity = identities.from_environment({"RANKZERO_POD_IP": "127.0.0.1"}, nodes=1)

    async def scenario() -> None:
        server = await Roster(launch, identity.run_key, identity.config_hash, said.append).serve()
        async with asyncio.timeout(PATIENCE):
            _, writer = await Joining(launch, identity, "", said.append).join()
        writer.close()
        server.close()

    began = time.monotonic()
    asyncio.run(scenario())
    return time.monotonic() - began


def test_a_folder_that_takes_longer_than_rank_0_is_given_for_its_answer_is_waited_for_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script beside a million files, or on a file server that is busy."""

    def slow(_: LaunchConfig) -> str:
        time.sleep(reach.CONNECT_TIMEOUT + 0.5)
        return "late"

    monkeypatch.setattr(code, "fingerprint", slow)
    said: list[str] = []
    joins(LaunchConfig(script(tmp_path / "code"), rendezvous_port=free_port(), rank0_timeout=60), said)
    assert any("joined the group" in line for line in said)


def hanging(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[int]]:
    """A folder that does not answer before the event is set, and one entry for each read of it."""
    answers, reads = threading.Event(), []

    def hang(_: LaunchConfig) -> str:
        reads.append(1)
        answers.wait()
        return "late"

    monkeypatch.setattr(code, "fingerprint", hang)
    return answers, reads


def test_a_folder_that_does_not_answer_keeps_nobody_from_joining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, reads = hanging(monkeypatch)
    monkeypatch.setattr(joining, "READ_WITHIN", 0.2)
    monkeypatch.setattr(roster, "READ_WITHIN", 0.2)
    said: list[str] = []
    try:
        joins(LaunchConfig(script(tmp_path / "code"), rendezvous_port=free_port(), rank0_timeout=60), said)
    finally:
        answers.set()
    assert any("joined the group" in line for line in said)
    assert len([line for line in said if "its code is not compared" in line]) == 2
    assert len(reads) == 2, "one of each side"


def test_of_a_folder_that_hangs_one_read_hangs_and_its_answer_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, reads = hanging(monkeypatch)
    said: list[str] = []

    async def scenario() -> None:
        own = code.Code(LaunchConfig(script(tmp_path / "code")), said.append)
        assert list(await asyncio.gather(own.fingerprint(0.1), own.fingerprint(0.1))) == ["", ""]
        assert await own.fingerprint(0.1) == ""
        answers.set()
        assert await own.fingerprint(PATIENCE) == "late"

    try:
        asyncio.run(scenario())
    finally:
        answers.set()
    assert len(reads) == len(said) == 1
    assert "its code is not compared" in said[0]


def test_a_pod_with_an_old_copy_waits_and_joins_once_it_has_the_new_one(make_group: MakeGroup, tmp_path: Path) -> None:
    """The folder of one node was not brought up to date: without this both would train, each its own program."""
    group = make_group("wait")
    old = tmp_path / "old" / SCRIPT.name
    old.parent.mkdir()
    old.write_text(SCRIPT.read_text() + "\n# an older copy\n")
    new = tmp_path / "new" / SCRIPT.name
    new.parent.mkdir()
    new.write_text(SCRIPT.read_text())
    for pod, copy in zip(group.pods, (new, old), strict=True):
        settings = yaml.safe_load(pod.config.read_text())
        settings["launch"]["script"] = str(copy)
        pod.config.write_text(yaml.safe_dump(settings))
    group.start()
    until(lambda: "differs from that of rank 0" in group.pods[1].output, what="the refusal")
    says = f"its code in {new.parent} differs"
    until(lambda: says in group.pods[0].output, what="rank 0 says so")
    assert not group.workers(1)
    old.write_text(SCRIPT.read_text())
    group.wait_for_workers(1, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
