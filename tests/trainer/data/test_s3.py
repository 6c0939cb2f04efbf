"""A real S3 server (versitygw, built from Go modules): packing to it, and ranks with workers reading from it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from rankzero.config import DataLoaderConfig, TrainConfig
from rankzero.errors import DataError
from rankzero.train.data.from_config import load_data, open_data
from scripts.cache import cache_dir
from tests.trainer.data.shards import numbers
from tests.waiting import until

SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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
            until(lambda: answers(port), timeout=60, what="the server")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def environment(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the chart's `objectStorage` sets it."""
    monkeypatch.setattr(contract, "CACHE_PATH", str(tmp_path))
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "password",
    }.items():
        monkeypatch.setenv(name, value)


def numbers_of(samples: list[Any]) -> list[int]:
    return [sample["n"] for sample in samples]


def test_two_ranks_with_workers_read_every_sample_once(tmp_path: Path) -> None:
    url = numbers("s3://bucket/folder", 200, shards=20, size=20_000)
    config = TrainConfig(data=url, data_loader=DataLoaderConfig(workers=2, window=2))
    seen: list[int] = []
    for rank in range(2):
        for batch in load_data(config, open_data(config), rank, 2, collate=numbers_of):
            seen += batch
    assert sorted(seen) == list(range(200))
    assert len(list((tmp_path / "data").glob("*/*.rz"))) == 20


def test_a_forked_process_fetches_what_nobody_has_fetched_ahead() -> None:
    url = numbers("s3://bucket/forked", 20, shards=4)
    dataset = open_data(TrainConfig(data=url))
    pid = os.fork()
    if pid == 0:
        found = [dataset[number]["n"] for number in range(20)]
        os._exit(0 if found == list(range(20)) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("secret", ["wrong", ""])
def test_credentials_that_are_not_right_are_named(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(DataError, match=r"cannot use s3://bucket/folder/index\.json") as found:
        open_data(TrainConfig(data="s3://bucket/folder"))
    assert "AWS_SECRET_ACCESS_KEY" in found.value.hint
