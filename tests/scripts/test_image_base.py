"""Which base the trainer image is built on."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.image import base, stand_in
from scripts.image.context import locked_version


@contextmanager
def registry(status: int) -> Iterator[str]:
    """A server on this machine that answers every request with ``status``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_production_base_is_pinned_by_digest_and_has_the_locked_torch() -> None:
    reference = base.production()
    assert "@sha256:" in reference
    assert f":{locked_version('torch')}-" in reference


@pytest.mark.parametrize(("status", "expected"), [(200, True), (401, True), (403, False), (502, False)])
def test_a_registry_answers_when_it_serves_or_asks_for_a_login(status: int, expected: bool) -> None:
    with registry(status) as host:
        assert base.answers(host) is expected


def test_nothing_listening_counts_as_no_answer() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not base.answers(f"127.0.0.1:{unused.getsockname()[1]}")


def test_a_registry_that_accepts_and_says_nothing_is_given_up_at_the_deadline() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        assert not base.answers(f"127.0.0.1:{silent.getsockname()[1]}", deadline=0.5)
        assert time.monotonic() - began < 30


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stand-in's files that a test may change."""
    for path in stand_in.FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(stand_in, "FOLDER", tmp_path)
    return tmp_path


def change_file(folder: Path) -> str:
    (folder / "trim.txt").write_text("torch/include\n", encoding="utf-8")
    return "torch==1"


def add_file(folder: Path) -> str:
    (folder / "more.txt").write_text("", encoding="utf-8")
    return "torch==1"


def change_lock(_: Path) -> str:
    return "torch==2"


@pytest.mark.parametrize("change", [change_file, add_file, change_lock])
def test_the_stand_ins_tag_follows_each_of_its_inputs(own_folder: Path, change: Callable[[Path], str]) -> None:
    before = stand_in.inputs_hash("torch==1")
    assert stand_in.inputs_hash("torch==1") == before
    assert stand_in.inputs_hash(change(own_folder)) != before


def test_the_stand_ins_debian_has_the_listed_packages_and_no_manuals(tmp_path: Path) -> None:
    words = stand_in.debian_command(["git", "python3"], tmp_path / "rootfs.tar")
    assert words[-2:] == ["bookworm", str(tmp_path / "rootfs.tar")]
    assert "--include=git,python3" in words
    assert "--dpkgopt=path-exclude=/usr/share/man/*" in words
