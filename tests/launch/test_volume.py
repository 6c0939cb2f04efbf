"""A file server that is away (a FIFO without a reader hangs just like it)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rankzero.launch import volume
from tests.launch.pods import REPO
from tests.waiting import PATIENCE, until


def test_what_fails_or_hangs_is_said_and_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume, "WITHIN", 3)
    fifo = tmp_path / "hangs"
    os.mkfifo(fifo)
    said: list[str] = []

    async def scenario() -> list[int]:
        return [
            await volume.attempt(lambda: 1, 0, said.append),
            await volume.attempt(lambda: int(Path("/no/such").read_text()), 2, said.append),
            await volume.attempt(lambda: int(fifo.read_text()), 3, said.append),
        ]

    assert asyncio.run(scenario()) == [1, 2, 3]
    assert said == [
        "the checkpoint volume: No such file or directory; going on without",
        "the checkpoint volume did not answer within 3 s; going on without",
    ]
    fifo.write_text("4")  # let the thread go


def test_a_mistake_of_ours_is_not_taken_for_the_volumes() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(volume.attempt(lambda: 1 // 0, 0, pytest.fail))


def test_a_hanging_volume_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hangs")
    code = (
        "import asyncio, pathlib; from rankzero.launch import volume; volume.WITHIN = 0.2; "
        f"asyncio.run(volume.attempt(pathlib.Path({str(tmp_path / 'hangs')!r}).read_text, '', print))"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(REPO / "trainer")}, timeout=PATIENCE, check=True
    )


def test_a_write_that_hangs_is_one_thread_however_often_the_state_changes_and_the_newest_is_written(
    tmp_path: Path,
) -> None:
    hangs, same, written = tmp_path / "hangs", tmp_path / "same", tmp_path / "written"
    os.mkfifo(hangs)
    os.link(hangs, same)
    written.touch()
    state = 0
    said: list[str] = []

    def save() -> None:
        now = state
        hangs.read_text()
        with written.open("a") as file:
            file.write(f"{now}\n")

    async def scenario() -> int:
        nonlocal state
        saving = volume.Saving(save, said.append)
        before = threading.active_count()
        for state in range(1, 50):
            await saving.done(within=0.1 if state == 1 else 1000)  # known to hang: not waited for again
        threads = threading.active_count() - before
        hangs.unlink()
        hangs.touch()  # the file server is back
        await asyncio.to_thread(same.write_text, "")
        await asyncio.to_thread(until, lambda: "49" in written.read_text(), what="the newest state")
        return threads

    assert asyncio.run(scenario()) == 1
    assert written.read_text().split() == ["1", "49"]
    assert set(said) == {
        "the checkpoint volume did not answer within 0.1 s; going on without",
        "the checkpoint volume did not answer within 1000 s; going on without",
    }


def test_what_cannot_be_saved_is_said_and_tried_again(tmp_path: Path) -> None:
    said: list[str] = []
    target = tmp_path / "folder" / "file"

    async def scenario() -> None:
        saving = volume.Saving(lambda: target.touch(), said.append)
        await saving.done()
        target.parent.mkdir()
        await saving.done()

    asyncio.run(scenario())
    assert said == ["the checkpoint volume: No such file or directory; going on without"]
    assert target.exists()
