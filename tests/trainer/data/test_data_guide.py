"""docs/data.md: its commands pack, its code reads what they have packed, its values render."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankzero.config import TrainConfig, parse
from scripts.cache import REPO
from tests.chart.rendering import minimal, render

GUIDE = (REPO / "docs/data.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The guide's first code block in this language; what comes later wants a cluster."""
    return str(re.findall(rf"^```{language}\n(.+?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0])


def test_its_values_render_and_are_settings() -> None:
    values = yaml.safe_load(block("yaml"))
    assert render({**minimal({}), **values})
    assert parse(TrainConfig, values["train"], "train").data_loader.max_bad_samples == 100


@pytest.mark.slow
def test_its_commands_pack_and_its_code_reads(tmp_path: Path) -> None:
    for number in range(90):
        path = tmp_path / "pictures" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff" + bytes(number))
    (tmp_path / "pictures/train.txt").write_text("a/0.jpg cat\nb/1.jpg dog\n")
    (tmp_path / "answers.jsonl").write_text('{"answer": 42}\n')
    (tmp_path / "book.txt").write_text("It was a bright cold day in April. " * 20)
    (tmp_path / "tokens.bin").write_bytes(bytes(1000))
    program = tmp_path / "bin" / "rankzero"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rankzero.cli "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPO / "trainer"),
    }
    counted = "\nassert data.epoch == 2 and len(dataset) == 90\n"
    for command in (["bash", "-euc", block("bash")], [sys.executable, "-c", block("python") + counted]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for name in ("shards", "listed", "answers", "book", "tokens"):
        assert (tmp_path / name / "index.json").exists()
