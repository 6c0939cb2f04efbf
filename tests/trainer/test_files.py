"""Small files are whole or absent, also where two processes write the same one."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from pathlib import Path

import pytest

from rankzero.files import finite, read_json, write_json

ROUNDS = 300


def write_as_process_1(path: Path) -> None:
    """Write again and again as a process that believes to be PID 1, like every launcher in its pod."""
    os.getpid = lambda: 1
    for number in range(ROUNDS):
        write_json(path, {"number": number, "padding": "x" * 1000}, durable=False)


def test_two_writers_of_one_file_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    """Two pods on one volume: their process ids are the same."""
    path = tmp_path / "progress.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_as_process_1, args=(path,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert read_json(path) == {"number": ROUNDS - 1, "padding": "x" * 1000}
    assert [file.name for file in tmp_path.iterdir()] == ["progress.json"]


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None


@pytest.mark.parametrize("content", [b"", b'{"step": ', b"\0\0\0\0", b"\xff\xfe"])
def test_a_damaged_file_is_an_error_unless_the_caller_takes_it_for_absent(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "progress.json"
    path.write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 -- JSON or encoding, both are ValueErrors
        read_json(path)
    assert read_json(path, damaged_is_absent=True) is None


def test_nan_and_infinity_are_refused_and_what_others_wrote_of_them_is_null(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"loss": finite(0.5), "worst": finite(math.inf)})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": math.nan})
    assert json.loads(path.read_text()) == {"loss": 0.5, "worst": None}
    path.write_text('{"loss": NaN, "best": -Infinity, "step": 3}')
    assert read_json(path) == {"loss": None, "best": None, "step": 3}


def test_a_failed_write_leaves_the_old_document_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    write_json(path, {"step": 1})
    with pytest.raises(TypeError):
        write_json(path, {"step": object()})
    assert read_json(path) == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["progress.json"]
