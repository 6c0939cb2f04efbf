"""Files past the page cache: their bytes and sums are right on every volume, and no open file is left."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from rankzero import sums
from rankzero.train.checkpoint import manifest, stream
from rankzero.train.checkpoint.stream import SummedFile

PIECE = 64 * 2**10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and blocks of which a test can write several."""
    monkeypatch.setattr(stream, "PIECE", PIECE)
    monkeypatch.setattr(sums, "BLOCK", 3 * PIECE)


def written(path: Path, size: int) -> bytes:
    """Bytes that were written to a file in parts of many lengths; its sums are checked."""
    data = os.urandom(size)
    file = SummedFile(path)
    begin, length = 0, 1
    while begin < size:
        file.write(memoryview(data)[begin : begin + length])
        begin, length = begin + length, length * 3
        assert file.tell() == min(begin, size)
    file.flush()
    file.close()
    assert {path.name: file.description} == manifest.describe(path.parent, [path.name])
    return data


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 7 * PIECE + 4097])
def test_a_file_has_the_bytes_that_were_written_and_their_sums(tmp_path: Path, size: int) -> None:
    assert written(tmp_path / "file", size) == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM])
def test_a_volume_that_only_knows_its_cache_is_written_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    original = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(refusal, os.strerror(refusal), path)
        return original(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    assert written(tmp_path / "file", 2 * PIECE + 5) == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_volume_with_boundaries_of_its_own_is_written_through_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    original = os.write

    def refuse(file: int, data: memoryview) -> int:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(refusal, os.strerror(refusal))
        return original(file, data[:1000])  # and never takes all at once

    monkeypatch.setattr(os, "write", refuse)
    assert written(tmp_path / "file", 2 * PIECE + 5) == (tmp_path / "file").read_bytes()


def test_a_failed_write_is_told_and_leaves_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- a folder of open files
    writer = stream.Writer(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="No space left"), writer.fs.create_stream(tmp_path / "file", "wb") as file:
        file.write(b"bytes")
    assert writer.described == {}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
