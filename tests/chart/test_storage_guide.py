"""docs/storage.md: its code runs, its values render."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import yaml

from rankzero import contract
from scripts.cache import REPO
from tests.chart.rendering import minimal, render

GUIDE = (REPO / "docs/storage.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Code blocks of the guide."""
    return re.findall(rf"^```{language}\n(.+?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_its_values_render() -> None:
    for block in blocks("yaml"):
        values = yaml.safe_load(block)
        assert render({**minimal({}), **values})


def test_its_code_reads_a_dataset_through_the_cache(tmp_path: Path) -> None:
    """On files: the same calls with another URL reach object storage."""
    remote, cache = tmp_path / "remote", tmp_path / "cache"
    remote.mkdir()
    (remote / "shard-00000.tar").write_bytes(b"content")
    datasets = {"imagenet": {"url": f"file://{remote}", "cache": str(cache)}}
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code + "assert shard.read() == b'content'"],
        env={contract.ENV_DATASETS: json.dumps(datasets)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"content" in [path.read_bytes() for path in cache.iterdir()]
