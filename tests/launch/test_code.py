"""Members with different code never train together, whatever brought it into their pods."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import yaml

from rankzero.config import LaunchConfig
from rankzero.launch import code
from tests.launch.conftest import MakeGroup
from tests.launch.pods import SCRIPT
from tests.waiting import until


def script(folder: Path, text: str = "print(1)") -> str:
    folder.mkdir()
    (folder / "train.py").write_text(text)
    (folder / "model.py").write_text("x = 1")
    return str(folder / "train.py")


def test_the_same_files_in_other_folders_have_one_name_and_a_changed_one_has_another(tmp_path: Path) -> None:
    one, two = script(tmp_path / "one"), script(tmp_path / "two")
    assert code.fingerprint(one) == code.fingerprint(two)
    (tmp_path / "two" / "data.txt").write_text("no code")
    assert code.fingerprint(one) == code.fingerprint(two)
    (tmp_path / "two" / "model.py").write_text("x = 2")
    assert code.fingerprint(one) != code.fingerprint(two)


def test_a_program_has_no_name_and_is_not_compared() -> None:
    assert code.fingerprint("") == ""


def test_a_script_of_another_kind_is_compared_too(tmp_path: Path) -> None:
    names = set()
    for text in ("1", "2"):
        (tmp_path / "train").write_text(text)
        names.add(code.fingerprint(str(tmp_path / "train")))
    assert len(names) == 2


def test_a_folder_that_does_not_answer_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_: str) -> str:
        time.sleep(3)
        return "late"

    monkeypatch.setattr(code, "fingerprint", hang)
    monkeypatch.setattr(code, "READ_WITHIN", 0.2)
    said: list[str] = []

    async def scenario() -> list[str]:
        own = code.Code(LaunchConfig(script(tmp_path / "code")), said.append)
        return list(await asyncio.gather(own.fingerprint(), own.fingerprint()))

    began = time.monotonic()
    assert asyncio.run(scenario()) == ["", ""]
    assert time.monotonic() - began < 2
    assert len(said) == 1
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
    until(lambda: "differ from those of rank 0" in group.pods[1].output, timeout=20, what="the refusal")
    assert f"its Python files in {new.parent} differ" in group.pods[0].output
    assert not group.workers(1)
    old.write_text(SCRIPT.read_text())
    group.wait_for_workers(1, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
