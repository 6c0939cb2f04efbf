"""What there is to pack, as numbered items that can be read in any order; so an interrupted packing goes on exactly."""

from __future__ import annotations

import bisect
import errno
import hashlib
import json
import os
import sys
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rankzero.errors import ConfigError
from rankzero.train.data.fields import ARRAY_KINDS, Field

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*", b"P5", b"P6")
"""First bytes of files with these suffixes."""


class BadItemError(Exception):
    """One item cannot be packed; the message names it and says why."""


class Items(Protocol):
    """Something to pack."""

    fields: tuple[Field, ...]
    about: dict[str, Any]
    fingerprint: str
    """Names the input and how it is read."""

    def __len__(self) -> int: ...

    def read(self, number: int) -> dict[str, Any]:
        """One item as a sample. Raises :class:`BadItemError`."""


class Images:
    """Image files with labels; the bytes are kept as they are, not decoded."""

    def __init__(self, labelled: Sequence[tuple[Path, int]], about: dict[str, Any]) -> None:
        """``labelled`` is each image's path and label."""
        self.fields: tuple[Field, ...] = (Field("image", "bytes"), Field("label", "int"))
        self._labelled = labelled
        self.about = about
        self.fingerprint = _stamp((path for path, _ in labelled), [label for _, label in labelled])

    def __len__(self) -> int:
        return len(self._labelled)

    def read(self, number: int) -> dict[str, Any]:
        """The file's bytes and its label."""
        path, label = self._labelled[number]
        try:
            image = path.read_bytes()
        except OSError as error:
            raise BadItemError(f"{path}: {error.strerror}") from error
        if not image.startswith(IMAGE_STARTS):
            raise BadItemError(f"{path}: {'empty' if not image else 'its first bytes are not those of an image'}")
        return {"image": image, "label": label}


def class_folders(folder: Path) -> Images:
    """One folder a class, their names in order being the labels 0, 1, ...; images may lie deeper in them.

    Raises :class:`ConfigError` where that is not what ``folder`` holds, or a folder in it cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name the folder that holds one folder a class")
    try:
        classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise _unreadable(folder, error) from error
    found = [(path, label) for label, name in enumerate(classes) for path in _files(folder / name)]
    labelled = [(path, label) for path, label in found if path.suffix.lower() in IMAGE_SUFFIXES]
    if left_out := [path for path, _ in found if path.suffix.lower() not in IMAGE_SUFFIXES]:
        sys.stderr.write(f"{len(left_out)} files are no images by their endings, and left out: {left_out[0]}, ...\n")
    if not labelled:
        raise ConfigError(
            f"{folder} has {len(classes)} folders and no image in them",
            hint=f"it holds one folder a class, with files ending in {', '.join(sorted(IMAGE_SUFFIXES))}",
        )
    return Images(labelled, {"classes": classes})


def image_list(listing: Path) -> Images:
    """A file with `PATH LABEL` in each line, tab, comma or space between; paths are relative to the file's folder.

    Labels are whole numbers, or else names, which become 0, 1, ... in their order. Raises :class:`ConfigError` with
    the line that is wrong.
    """
    pairs = []
    for number, line in enumerate(_lines(listing), 1):
        if not (text := line.strip()):
            continue
        separator = next((one for one in "\t," if one in text), None)
        path, *label = (part.strip() for part in text.rsplit(separator, 1))
        if not path or not label or not label[0]:
            raise ConfigError(f"{listing} line {number} is {text!r}", hint="write PATH LABEL in each line")
        pairs.append((listing.parent / path, label[0]))
    if not pairs:
        raise ConfigError(f"{listing} lists no image", hint="write PATH LABEL in each line")
    if all(label.removeprefix("-").isdecimal() for _, label in pairs):
        return Images([(path, int(label)) for path, label in pairs], {})
    classes = sorted({label for _, label in pairs})
    numbers = {name: number for number, name in enumerate(classes)}
    return Images([(path, numbers[label]) for path, label in pairs], {"classes": classes})


class JsonLines:
    """One JSON value a line; empty lines count for nothing."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Reads the files once, to find their lines. Raises :class:`ConfigError` where one cannot be read."""
        self.fields: tuple[Field, ...] = (Field("json", "json"),)
        self.about: dict[str, Any] = {}
        self.fingerprint = _stamp(paths, ["jsonl"])
        self._paths = paths
        self._file, self._start, self._line = array("I"), array("Q"), array("Q")
        for number, path in enumerate(paths):
            at = 0
            with _open(path) as file:
                for line_number, line in enumerate(file, 1):
                    if line.strip():
                        self._file.append(number)
                        self._start.append(at)
                        self._line.append(line_number)
                    at += len(line)

    def __len__(self) -> int:
        return len(self._start)

    def read(self, number: int) -> dict[str, Any]:
        """The line's bytes, once they are known to be JSON."""
        path = self._paths[self._file[number]]
        with _open(path) as file:
            file.seek(self._start[number])
            line = file.readline().strip()
        try:
            json.loads(line)
        except ValueError as error:
            raise BadItemError(f"{path} line {self._line[number]} is not JSON: {error}") from error
        return {"json": line}


class Tokens:
    """Numbers in a row, one file after the other, cut into samples of ``length`` + 1.

    The last of each sample is the first of the next: a model has ``length`` inputs and, one further, their targets, and
    sees each transition once. With kind uint8 the bytes of any text are its tokens.
    """

    def __init__(self, paths: Sequence[Path], length: int, kind: str) -> None:
        """``kind`` is the numbers' type in the files, little-endian. Raises :class:`ConfigError`."""
        self.fields: tuple[Field, ...] = (Field("tokens", kind),)
        self.about = {"length": length}
        self.fingerprint = _stamp(paths, [length, kind])
        self._paths, self._length, self._width = paths, length, array(ARRAY_KINDS[kind]).itemsize
        self._starts = [0]
        for path in paths:
            with _open(path) as file:
                size = os.fstat(file.fileno()).st_size
            if size % self._width:
                raise ConfigError(
                    f"{path} has {size} bytes, which are no whole number of {kind}",
                    hint=f"say of what type its tokens are: --kind-of-token {'|'.join(ARRAY_KINDS)}",
                )
            self._starts.append(self._starts[-1] + size)
        tokens = self._starts[-1] // self._width
        self._samples = max(tokens - 1, 0) // length
        self.left_out = max(tokens - 1, 0) - self._samples * length
        """Tokens at the end that make no whole sample."""

    def __len__(self) -> int:
        return self._samples

    def read(self, number: int) -> dict[str, Any]:
        """``length`` + 1 tokens as bytes."""
        at, wanted = number * self._length * self._width, (self._length + 1) * self._width
        raw = b""
        while len(raw) < wanted:
            which = bisect.bisect_right(self._starts, at + len(raw)) - 1
            with _open(self._paths[which]) as file:
                file.seek(at + len(raw) - self._starts[which])
                part = file.read(min(wanted - len(raw), self._starts[which + 1] - at - len(raw)))
            if not part:
                raise BadItemError(f"{self._paths[which]} has become shorter than it was")
            raw += part
        return {"tokens": raw}


def _files(folder: Path) -> list[Path]:
    """All files below ``folder``, in the order of their paths, links to files among them; folders behind links are not.

    Links to nothing count too: reading says so, where leaving them out would lose samples in silence.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(Path(error.filename), error) from error

    return sorted(Path(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names)


def _stamp(paths: Iterable[Path], how: object) -> str:
    """A hash of the files' names, sizes and times, and of ``how`` they are read; reading tells what cannot be."""
    digest = hashlib.sha256(json.dumps(how).encode())
    for path in paths:
        try:
            found = path.stat()
            about = f"{found.st_size}\0{found.st_mtime_ns}"
        except OSError as error:
            about = f"{error.strerror}"
        digest.update(os.fsencode(path) + f"\0{about}\0".encode())
    return digest.hexdigest()


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    hints = {errno.EISDIR: f"name the files in it: {path}/*", errno.EACCES: "its permissions keep you out"}
    return ConfigError(f"cannot read {path}: {error.strerror}", hint=hints.get(error.errno or 0, "correct the path"))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}", hint="write PATH LABEL in each line") from error
