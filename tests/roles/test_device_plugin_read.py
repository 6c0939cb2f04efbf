"""Device plugins as a node shows them: sockets on which somebody listens, and the kubelet's checkpoint."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.device_plugin.library.device_plugin_read import read


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_a_plugin_that_listens_is_told_from_one_that_is_gone(folder: Path) -> None:
    with listen(folder / "kubelet.sock"), listen(folder / "nvidia-gpu.sock"):
        listen(folder / "old.sock").close()

        found = read(folder, folder / "record.json")

    assert (found["kubelet"], found["sockets"], found["dead_sockets"]) == (True, ["nvidia-gpu.sock"], ["old.sock"])


def test_without_folder_record_and_checkpoint_there_is_nothing(folder: Path) -> None:
    assert read(folder / "none", folder / "none" / "record.json") == {
        "record": {},
        "kubelet": False,
        "sockets": [],
        "dead_sockets": [],
        "registered": {},
    }


def test_the_checkpoint_tells_what_was_registered_once(folder: Path) -> None:
    devices = {"nvidia.com/gpu": ["GPU-0", "GPU-1"], "example.com/none": None}
    content = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": devices}, "Checksum": 1}
    (folder / "kubelet_internal_checkpoint").write_text(json.dumps(content))

    assert read(folder, folder / "x")["registered"] == {"nvidia.com/gpu": 2, "example.com/none": 0}


@pytest.mark.parametrize("text", ["", '{"Data"', "{}", '{"Data": null}'])
def test_a_checkpoint_that_is_half_written_or_empty_registers_nothing(folder: Path, text: str) -> None:
    (folder / "kubelet_internal_checkpoint").write_text(text)

    assert read(folder, folder / "x")["registered"] == {}


def test_the_record_is_read_back(folder: Path) -> None:
    (folder / "record.json").write_text('{"labels": ["gpu"]}')

    assert read(folder, folder / "record.json")["record"] == {"labels": ["gpu"]}


def test_a_record_that_was_damaged_is_named_and_not_taken_for_none(folder: Path) -> None:
    """What the role wrote on the Node object would stay there for ever."""
    (folder / "record.json").write_text('{"labels": [')

    with pytest.raises(ValueError, match=r"record\.json is not JSON"):
        read(folder, folder / "record.json")
