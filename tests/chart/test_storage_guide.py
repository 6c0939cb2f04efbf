"""docs/storage.md: its code runs, its values render."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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
    """On files."""
    remote, cache = tmp_path / "remote", tmp_path / "cache"
    remote.mkdir()
    cache.mkdir()
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


def test_its_code_reads_from_an_s3_with_the_settings_of_the_chart(tmp_path: Path) -> None:
    """A stand-in for S3: the requests are real and signed, and nobody checks the signature."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            for key, value in (("Content-Length", "7"), ("ETag", '"1"'), ("Last-Modified", formatdate(usegmt=True))):
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(b"content")

        def log_message(self, format: str, *args: Any) -> None:
            """No lines in the tests' output."""

    datasets = {"imagenet": {"url": "s3://bucket/imagenet", "cache": str(tmp_path)}}
    (code,) = blocks("python")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            done = subprocess.run(
                [sys.executable, "-c", code + "assert shard.read() == b'content'"],
                env={
                    contract.ENV_DATASETS: json.dumps(datasets),
                    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
                    "AWS_ALLOW_HTTP": "true",
                    "AWS_REGION": "eu-central-1",
                    "AWS_ACCESS_KEY_ID": "somebody",
                    "AWS_SECRET_ACCESS_KEY": "x",
                },
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            server.shutdown()
            thread.join()
    assert done.returncode == 0, done.stderr
    assert {path for path, _ in asked} == {"/bucket/imagenet/shard-00000.tar"}
    assert all("Credential=somebody/" in signature and "/eu-central-1/s3/" in signature for _, signature in asked)
