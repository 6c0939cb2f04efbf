"""A real S3 server, versitygw, built from Go modules, for the `long` tests of data and of copies of checkpoints."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from scripts.cache import cache_dir
from tests.waiting import until

SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the server, with one bucket."""
    program = cache_dir("programs", "versitygw-1.8.0") / "versitygw"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            pytest.skip("no Go to build the server with")
        subprocess.run([go, "install", SERVER], env={**os.environ, "GOBIN": str(program.parent)}, check=True)
    folder = tmp_path_factory.mktemp("s3")
    (folder / "bucket").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [str(program), "--access", "user", "--secret", "password", "--port", f"127.0.0.1:{port}"]
    with subprocess.Popen([*arguments, "posix", str(folder)], stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(port), timeout=60, what="the server")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment, as the chart's `objectStorage` sets it."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "password",
    }.items():
        monkeypatch.setenv(name, value)
