"""The command line of ``rankzero pack``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TextIO

from rankzero import contract
from rankzero.errors import ConfigError
from rankzero.train.data.fields import ARRAY_KINDS
from rankzero.train.data.pack import items
from rankzero.train.data.pack.pack import pack
from rankzero.train.data.sources import Source

LENGTH = 1024
MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.add_argument(
        "kind",
        choices=("images", "list", "jsonl", "text", "tokens"),
        help="images: a folder with one folder a class; list: a file with PATH LABEL in each line; jsonl: files with "
        "a JSON value in each line; text: files whose bytes are the tokens; tokens: files of numbers",
    )
    parser.add_argument("input", nargs="+", type=_path, help="the folder, the list, or the files")
    parser.add_argument("out", type=_place, help="where the shards go: a folder, or a URL such as s3://bucket/folder")
    parser.add_argument("--shards", type=_positive, default=64, help="have about so many (default: %(default)s)")
    parser.add_argument(
        "--shard-size",
        type=_positive,
        default=64,
        metavar="MIB",
        help="end a shard that has reached this size (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order in which samples are mixed (%(default)s)")
    parser.add_argument("--keep-order", action="store_true", help="do not mix them")
    parser.add_argument("--length", type=_positive, default=LENGTH, help="tokens a sample, plus one (%(default)s)")
    parser.add_argument("--kind-of-token", choices=tuple(ARRAY_KINDS), default="uint16", help="(%(default)s)")
    parser.add_argument(
        "--max-bad", type=_count, default=0, metavar="N", help="leave out so many bad items (%(default)s)"
    )
    parser.add_argument("--anew", action="store_true", help="drop what was packed there of other input, or otherwise")


def run(options: argparse.Namespace) -> int:
    """Pack what the command line names."""
    out = Source(options.out)
    if out.folder is not None and out.folder.exists() and not out.folder.is_dir():
        raise ConfigError(f"{options.out} is a file, and shards need a folder", hint="name another place for them")
    found = _items(options)
    if isinstance(found, items.Tokens) and found.left_out:
        print(f"{found.left_out} tokens at the end make no whole sample", file=sys.stderr)
    packed = pack(
        found,
        out,
        shard_bytes=options.shard_size * MIB,
        shards=options.shards,
        seed=None if options.keep_order else options.seed,
        max_bad=options.max_bad,
        anew=options.anew,
        report=Bar(sys.stderr),
    )
    size = sum(shard.bytes for shard in packed.shards)
    print(f"{packed.samples} samples in {len(packed.shards)} shards, {size / MIB:.1f} MiB, in {out.url}")
    return contract.EXIT_OK


class Bar:
    """How far a packing is: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._every = 0.2 if self._terminal else 30.0
        self._began = self._last = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """``done`` of ``total`` items are packed."""
        now = time.monotonic()
        if self._first is None:
            self._first = done - 1
        if now - self._last < self._every and done < total:
            return
        self._last = now
        rate = (done - self._first) / max(now - self._began, 1e-9)
        left = (total - done) / max(rate, 1e-9)
        line = f"{done}/{total} samples  {done / total:4.0%}  {rate:.0f}/s  {left:.0f} s left"
        if self._terminal:
            filled = 30 * done // total
            end = "\n" if done == total else ""
            self._stream.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {line}\x1b[K{end}")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()


def _items(options: argparse.Namespace) -> items.Items:
    paths: list[Path] = options.input
    if options.kind in ("images", "list") and len(paths) > 1:
        raise ConfigError(
            f"rankzero pack {options.kind} has {len(paths)} inputs: {', '.join(map(str, paths))}",
            hint="name one, and then where the shards go",
        )
    if options.kind == "images":
        return items.class_folders(paths[0])
    if options.kind == "list":
        return items.image_list(paths[0])
    if options.kind == "jsonl":
        return items.JsonLines(paths)
    return items.Tokens(paths, options.length, "uint8" if options.kind == "text" else options.kind_of_token)


def _positive(text: str) -> int:
    return _whole(text, least=1)


def _count(text: str) -> int:
    return _whole(text, least=0)


def _whole(text: str, *, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def _place(text: str) -> str:
    if not text.strip():  # as where a variable of a shell is not set: the current folder is not meant
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _path(text: str) -> Path:
    return Path(_place(text))
