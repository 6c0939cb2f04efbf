"""`rankzero pack`: every kind of input, interruptions, and bad input that is named."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankzero import cli
from rankzero.errors import ConfigError, DataError
from rankzero.train.data import index, layout
from rankzero.train.data.fields import decode
from rankzero.train.data.index import INDEX_FILE, Index
from rankzero.train.data.pack import items
from rankzero.train.data.pack.pack import JOURNAL_FILE, pack
from rankzero.train.data.sources import Source
from tests.waiting import until

PNG = b"\x89PNG\r\n\x1a\n"


def samples(folder: Path) -> list[dict[str, Any]]:
    """All that is packed there, read by the format's description."""
    found = index.load((folder / INDEX_FILE).read_bytes(), str(folder))
    answer = []
    for shard in found.shards:
        raw = (folder / shard.name).read_bytes()
        table = layout.Table(raw[: layout.table_bytes(shard.samples)])
        for number in range(shard.samples):
            offset, length = table.place(number)
            answer.append(decode(found.fields, raw[offset : offset + length]))
    return answer


def images(folder: Path, count: int = 60) -> Path:
    for number in range(count):
        path = folder / ("cat", "dog", "emu")[number % 3] / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG + b"%d" % number)
    return folder


def command(*arguments: object) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["pack", *map(str, arguments)])
    assert end.value.code == 0, end.value.code


def test_class_folders_become_mixed_images_with_the_numbers_of_their_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images(tmp_path / "in")
    (tmp_path / "in/cat/notes.txt").write_text("no image")
    command("images", tmp_path / "in", tmp_path / "out", "--shards", 12)
    found = samples(tmp_path / "out")
    assert sorted((int(one["image"].removeprefix(PNG)), one["label"]) for one in found) == [
        (number, number % 3) for number in range(60)
    ]
    # A reader mixes a few shards at a time, so that neighbours must not be alike.
    assert len({one["label"] for one in found[:6]}) > 1
    said = capsys.readouterr()
    assert "60 samples in 12 shards" in said.out
    assert "60/60 samples  100%" in said.err
    about = json.loads((tmp_path / "out" / INDEX_FILE).read_text())["about"]
    assert about == {"classes": ["cat", "dog", "emu"]}


@pytest.mark.parametrize(
    ("text", "labels", "about"),
    [
        ("cat/000.png 7\ndog/001.png -1\n\nemu/002.png 7\n", [-1, 7, 7], {}),
        ("cat/000.png,yes\ndog/001.png,no\nemu/002.png,yes\n", [0, 1, 1], {"classes": ["no", "yes"]}),
        ("cat/000.png\tbig cat\n", [0], {"classes": ["big cat"]}),
    ],
)
def test_a_list_names_images_and_their_labels(
    tmp_path: Path, text: str, labels: list[int], about: dict[str, Any]
) -> None:
    listing = images(tmp_path, 3) / "train.lst"
    listing.write_text(text)
    command("list", listing, tmp_path / "out")
    assert sorted(one["label"] for one in samples(tmp_path / "out")) == labels
    assert json.loads((tmp_path / "out" / INDEX_FILE).read_text())["about"] == about


def test_json_lines_are_kept_and_their_order_too_where_asked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 0}\n\n{"n": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"n": 2}')
    command("jsonl", tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "out", "--keep-order")
    assert [one["json"]["n"] for one in samples(tmp_path / "out")] == [0, 1, 2]


def test_text_is_cut_across_files_so_that_every_transition_is_seen_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("abcd")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.txt").write_text("efghi")
    command("text", *sorted(tmp_path.glob("*.txt")), tmp_path / "out", "--length", 3, "--keep-order")
    assert [bytes(one["tokens"]).decode() for one in samples(tmp_path / "out")] == ["abcd", "defg"]
    assert "2 tokens at the end" in capsys.readouterr().err


def test_tokens_keep_their_type(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(b"".join(n.to_bytes(4, "little") for n in range(70000, 70009)))
    command("tokens", tmp_path / "tokens.bin", tmp_path / "out", "--length", 4, "--kind-of-token", "uint32")
    assert sorted(one["tokens"].tolist() for one in samples(tmp_path / "out")) == [
        [70000, 70001, 70002, 70003, 70004],
        [70004, 70005, 70006, 70007, 70008],
    ]


class Counted(items.Images):
    """Counts what is read, and is interrupted at will."""

    reads = 0
    stop_at = -1

    def read(self, number: int) -> dict[str, Any]:
        self.reads += 1
        if self.reads == self.stop_at:
            raise KeyboardInterrupt
        return super().read(number)


def counted(folder: Path) -> Counted:
    return Counted([(path, 0) for path in sorted(folder.rglob("*.png"))], {})


def packed(found: items.Items, folder: Path, **options: Any) -> Index:
    return pack(found, Source(str(folder)), shards=12, journal_every=0, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("stop_at", [1, 5, 6, 31, 60])
def test_an_interrupted_packing_goes_on_where_it_was_and_ends_in_the_same_bytes(tmp_path: Path, stop_at: int) -> None:
    folder = images(tmp_path / "in")
    packed(counted(folder), tmp_path / "undisturbed")
    first = counted(folder)
    first.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        packed(first, tmp_path / "out")
    assert not (tmp_path / "out" / INDEX_FILE).exists()
    second = counted(folder)
    packed(second, tmp_path / "out")
    assert second.reads == 60 - (stop_at - 1) // 5 * 5  # five images fill a shard
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")
    third = counted(folder)
    packed(third, tmp_path / "out")
    assert third.reads == 0


@pytest.mark.slow
def test_a_packing_that_is_killed_and_called_again_ends_in_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(30_000)))
    arguments = [sys.executable, "-m", "rankzero.cli", "pack", "jsonl", "in.jsonl"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*arguments, out, "--shards", "120"], cwd=tmp_path, env=environment)

    assert run("undisturbed").wait(100) == 0
    with run("out") as process:
        until(lambda: (tmp_path / "out/shard-000010.rz").exists(), what="ten shards")
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out" / INDEX_FILE).exists()
    assert (tmp_path / "out" / JOURNAL_FILE).exists()
    assert run("out").wait(100) == 0
    left = {name: raw for name, raw in contents(tmp_path / "out").items() if not name.endswith(".tmp")}
    assert left == contents(tmp_path / "undisturbed")


def test_other_input_is_not_mixed_into_what_is_there(tmp_path: Path) -> None:
    folder = images(tmp_path / "in")
    stopped = counted(folder)
    stopped.stop_at = 20
    with pytest.raises(KeyboardInterrupt):
        packed(stopped, tmp_path / "out")
    with pytest.raises(ConfigError, match="a packing of other data, or in another way"):
        packed(counted(folder), tmp_path / "out", seed=1)
    packed(counted(folder), tmp_path / "out")
    with pytest.raises(ConfigError, match="holds other data already"):
        packed(counted(images(folder, 61)), tmp_path / "out")


def test_a_bad_image_is_named_or_left_out_where_so_many_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = images(tmp_path / "in", 9)
    (folder / "cat/000.png").write_bytes(b"<html>")
    (folder / "dog/001.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"dog/001.png: empty \(2 bad so far, 1 allowed\)|cat/000.png: its first bytes"):
        packed(counted(folder), tmp_path / "out", max_bad=1)
    assert packed(counted(folder), tmp_path / "out", max_bad=2).samples == 7
    assert "left out:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["images", "absent"], "absent is not a folder"),
        (["images", "empty"], "empty has 0 folders and no image"),
        (["list", "absent.lst"], "cannot read absent.lst: No such file"),
        (["list", "bad.lst"], "bad.lst line 1 is 'lonely.png'"),
        (["list", "missing.lst"], "missing.png: No such file"),
        (["jsonl", "bad.jsonl"], "bad.jsonl line 2 is not JSON"),
        (["jsonl", "nothing.txt"], "there is nothing to pack"),
        (["text", "nothing.txt"], "there is nothing to pack"),
        (["tokens", "odd.bin"], "odd.bin has 3 bytes, which are no whole number of uint16"),
    ],
)
def test_bad_input_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.lst").write_text("lonely.png\n")
    (tmp_path / "missing.lst").write_text("missing.png 1\n")
    (tmp_path / "bad.jsonl").write_text('{"n": 0}\n{"n": \n')
    (tmp_path / "nothing.txt").write_text("")
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(SystemExit) as end:
        cli.main(["pack", *arguments, "out"])
    assert end.value.code != 0
    assert says in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((DataError, ConfigError), match="file"):
        packed(counted(images(tmp_path / "in")), tmp_path / "file")


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What is said to a person who calls it so."""
    with pytest.raises(SystemExit) as end:
        cli.main(["pack", *map(str, arguments)])
    assert end.value.code not in (0, None)
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def test_input_that_was_mended_is_packed_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(tmp_path / "in", 12)
    bad = tmp_path / "in/cat/bad.png"
    bad.write_bytes(b"nothing")
    assert "--anew" in refused(capsys, "images", tmp_path / "in", tmp_path / "out")
    bad.write_bytes(PNG)
    assert "--anew" in refused(capsys, "images", tmp_path / "in", tmp_path / "out")
    command("images", tmp_path / "in", tmp_path / "out", "--anew", "--shards", 4)
    assert len(samples(tmp_path / "out")) == 13
    bad.unlink()
    command("images", tmp_path / "in", tmp_path / "out", "--anew", "--shards", 2)
    assert len(samples(tmp_path / "out")) == 12
    assert len(list((tmp_path / "out").glob("shard-*"))) == 2
    before = (tmp_path / "out/shard-000000.rz").stat().st_mtime_ns
    command("images", tmp_path / "in", tmp_path / "out", "--anew", "--shards", 2)
    assert (tmp_path / "out/shard-000000.rz").stat().st_mtime_ns == before


def test_names_that_are_no_text_and_links_to_nothing_are_named_or_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images(tmp_path / "in", 6)
    Path(os.fsdecode(bytes(tmp_path / "in/cat") + b"/\xff\xe9.png")).write_bytes(PNG)
    (tmp_path / "in/dog/lost.png").symlink_to("/nowhere/lost.png")
    (tmp_path / "in/dog/photo.heic").write_bytes(b"?")
    told = refused(capsys, "images", tmp_path / "in", tmp_path / "out")
    assert "dog/lost.png: No such file" in told
    assert "1 files are no images by their endings" in told
    assert "photo.heic" in told
    command("images", tmp_path / "in", tmp_path / "out", "--max-bad", 1)
    assert len(samples(tmp_path / "out")) == 7


def test_a_folder_that_cannot_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images(tmp_path / "in", 6)
    scandir = os.scandir

    def locked(path: str) -> Any:  # tests may run as root, whom no permission keeps out
        if str(path).endswith("dog"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    with pytest.raises(ConfigError, match=r"cannot read .*dog: Permission denied"):
        items.class_folders(tmp_path / "in")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["images", "in", ""], "it is empty"),
        (["images", "", "out"], "it is empty"),
        (["images", "in", "file"], "file is a file, and shards need a folder"),
        (["images", "in", "file/out"], "cannot write file/out"),
        (["images", "in", "reference://nowhere"], "rankzero: reference://nowhere: "),
        (["images", "in", "in", "out"], "has 2 inputs: in, in"),
        (["jsonl", "in", "out"], "cannot read in: Is a directory\n  fix: name the files in it: in/*"),
        (["tokens", "in", "out"], "cannot read in: Is a directory"),
        (["text", "nothing", "out"], "cannot read nothing: No such file"),
        (["text", "file", "out", "--length", "x"], "'x' is not a whole number"),
        (["text", "file", "out", "--max-bad", "-1"], "-1 is less than 0"),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    images(tmp_path / "in", 6)
    (tmp_path / "file").write_text("text")
    monkeypatch.chdir(tmp_path)
    assert told in refused(capsys, *arguments)
    assert not (tmp_path / "out").exists()


def test_who_interrupts_it_sees_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(items.Images, "read", interrupted)
    assert "rankzero: interrupted" in refused(capsys, "images", images(tmp_path / "in"), tmp_path / "out")
