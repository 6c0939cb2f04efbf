"""MANIFEST.json: what a checkpoint consists of, written last, so that what is missing or damaged has a name.

Checksums are CRC-32 of blocks: it finds every damage of up to 32 neighbouring bits and all but one in 2**32 others,
is the fastest in the standard library, and blocks can be summed in parallel. They are against failing disks and
networks, not against people.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import rankzero
from rankzero import contract, sums
from rankzero.files import finite, read_json, write_json

FORMAT = 2
"""Of the files beside the manifest. 1 was one torch.save file for everything."""
PIECE = 2**20
"""Bytes that are read at a time: memory stays small, and zlib sums them without the interpreter's lock."""
THREADS = 8

Files = dict[str, dict[str, Any]]
"""By name: ``size`` in bytes, and ``crc32`` of each block as eight hexadecimal digits."""


def describe(folder: Path, names: Iterable[str]) -> Files:
    """Sizes and checksums of files in ``folder`` as they are now. Raises OSError."""
    return {name: {"size": (folder / name).stat().st_size, "crc32": checksums(folder / name)} for name in sorted(names)}


def checksums(path: Path) -> list[str]:
    """CRC-32 of each :data:`rankzero.sums.BLOCK` of a file; an empty file has one. Raises OSError."""
    blocks = max(1, -(-path.stat().st_size // sums.BLOCK))
    if blocks == 1:
        return [_checksum(path, 0)]
    with ThreadPoolExecutor(min(THREADS, blocks)) as pool:
        return list(pool.map(lambda number: _checksum(path, number), range(blocks)))


def write(folder: Path, *, step: int, world_size: int, files: Files, settings: Any, metric: float | None) -> None:
    """Complete a checkpoint. Raises OSError."""
    document = {
        "format": FORMAT,
        "step": step,
        "world_size": world_size,
        "versions": {"rankzero": rankzero.__version__, "torch": torch.__version__},
        "metric": None if metric is None else finite(metric),
        "settings": settings,
        "files": files,
    }
    write_json(folder / contract.MANIFEST_FILE, document)


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint that was verified. Raises OSError, and ValueError where it is not JSON."""
    document: dict[str, Any] | None = read_json(folder / contract.MANIFEST_FILE)
    if document is None:
        raise FileNotFoundError(f"{folder} has no manifest")
    return document


def size(folder: Path) -> int:
    """Bytes of a checkpoint by its manifest; 0 where nobody can say."""
    try:
        return sum(int(file["size"]) for file in read(folder)["files"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def verify(folder: Path, *, rank: int = 0, world_size: int = 1) -> str:
    """Why a checkpoint cannot be trusted; an empty text where it can.

    Sizes of all files are compared, and the checksums of this rank's share of them.
    """
    try:
        document = read_json(folder / contract.MANIFEST_FILE)
        if document is None:
            return "it has no manifest"
        if "files" in document and (found := document.get("format", 1)) != FORMAT:
            return f"its format is {found}, and this version of rankzero reads {FORMAT}"
        return mismatch(folder, document["files"], rank, world_size)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}: {error.filename or folder}"
    except ValueError:
        return "its manifest is not JSON"
    except (KeyError, TypeError, AttributeError):
        return "its manifest has another form"


def mismatch(folder: Path, files: Files, rank: int, world_size: int) -> str:
    """How ``files`` of a manifest differ from what is in ``folder``; as :func:`verify` does. Raises OSError."""
    if not files:
        return "its manifest names no file"
    for name, wanted in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if (found := file.stat().st_size) != wanted["size"]:
            return f"{name} has {found} bytes, not {wanted['size']}"
    for name in sorted(files)[rank::world_size]:
        for number, (found_sum, sum_) in enumerate(zip(checksums(folder / name), files[name]["crc32"], strict=True)):
            if found_sum != sum_:
                return f"{name} does not match its checksum (bytes from {number * sums.BLOCK})"
    return ""


def _checksum(path: Path, number: int) -> str:
    total = 0
    with path.open("rb", buffering=0) as file:
        offset, end = number * sums.BLOCK, (number + 1) * sums.BLOCK
        while offset < end and (piece := os.pread(file.fileno(), min(PIECE, end - offset), offset)):
            total = zlib.crc32(piece, total)
            offset += len(piece)
    return f"{total:08x}"
