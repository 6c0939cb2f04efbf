"""The process that copies for a rank: it can be ended, ends with the rank, and removes in an order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rankzero import objects, transfer
from rankzero.transfer import ENDED, Transfers
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def endless(tmp_path: Path) -> dict[str, Any]:
    """An upload of a pipe into which nobody writes."""
    os.mkfifo(tmp_path / "file")
    (tmp_path / "store").mkdir()
    described = {"size": 1, "crc32": []}
    return {"name": "step-0000000001", "source": str(tmp_path), "files": {"file": described}}


def test_a_transfer_that_waits_is_ended_from_another_thread_and_there_are_no_more(
    tmp_path: Path, endless: dict[str, Any]
) -> None:
    transfers, found = Transfers(), list[Any]()
    url = f"file://{tmp_path}/store"
    thread = threading.Thread(target=lambda: found.append(transfers.run("upload", url, **endless)))
    thread.start()
    until(lambda: transfers._process is not None, timeout=60, what="its process")
    transfers.end()
    thread.join(60)
    assert found == [(None, ENDED)]
    assert transfers.run("look", url) == (None, ENDED)


@pytest.mark.parametrize("length", [None, 10, 0])
def test_it_ends_when_the_rank_is_gone(tmp_path: Path, endless: dict[str, Any], length: int | None) -> None:
    """Also before it has said all that is to be done."""
    request = json.dumps({"job": "upload", "url": f"file://{tmp_path}/store", **endless}) + "\n"
    with subprocess.Popen(
        [sys.executable, "-m", transfer.__name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(request[:length])
        process.stdin.close()
        assert process.wait(60) == 1


def test_a_process_that_dies_is_a_problem_and_no_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert Transfers().run("look", f"file://{tmp_path}") == (None, "the process that does it ended with 1")
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert "no process to do it" in Transfers().run("look", f"file://{tmp_path}")[1]


def test_the_manifest_is_removed_first_so_that_what_is_half_deleted_is_no_checkpoint() -> None:
    from obstore.store import MemoryStore

    removed: list[Any] = []

    class Recorded(MemoryStore):
        def delete(self, paths: Any) -> None:
            removed.append(paths)
            super().delete(paths)

    store = Recorded()
    for path in ("step-0000000001/.metadata", "step-0000000001/MANIFEST.json", "step-0000000011/MANIFEST.json"):
        store.put(path, b"x")
    transfer._remove(store, "step-0000000001")
    assert removed == [["step-0000000001/MANIFEST.json"], ["step-0000000001/.metadata"]]
    assert [entry["path"] for entries in store.list() for entry in entries] == ["step-0000000011/MANIFEST.json"]


def test_what_signs_a_request_is_not_told() -> None:
    error = Exception("error sending request for url (https://a.example.com/c/x?se=1&sig=word), after 10 retries")
    assert objects.said(error) == (
        "Exception: error sending request for url (https://a.example.com/c/x?...), after 10 retries"
    )
