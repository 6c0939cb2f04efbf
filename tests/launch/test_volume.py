"""A file server that is away (a FIFO without a reader hangs just like it)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankzero.launch import volume
from tests.launch.pods import REPO


def test_what_fails_or_hangs_is_said_and_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume, "WITHIN", 0.2)
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
        "the checkpoint volume did not answer within 0.2 s; going on without",
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
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(REPO / "trainer")}, timeout=20, check=True)
