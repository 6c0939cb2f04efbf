"""Where the output of workers goes, and that neither much of it nor a bad volume stops anybody."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch.logs import LAST_LINE_LENGTH, LAST_LINES, Logs, plain
from rankzero.launch.protocol import WorkerFailed
from rankzero.launch.starters import start_plainly
from rankzero.launch.workers import WorkerGroup
from tests.launch.conftest import MakeGroup
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

STAMP = r"^\d\d:\d\d:\d\d "
FLOOD = "import os\nblock = b'0123456789 0123456789\\n' * 1000\nfor _ in range(%d): os.write(1, block)"
"""Prints thousands of lines as fast as they are read."""


def logs(volume: Path, say: list[str], **launch: object) -> Logs:
    return Logs(LaunchConfig(script="-c", **launch), volume, say.append)  # type: ignore[arg-type]


async def run(code: str, logs: Logs, *, rank: int = 1, attempt: int = 1) -> WorkerFailed | None:
    """One worker from its start to its end."""
    environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": "0", "TORCHELASTIC_ERROR_FILE": "/no/such/file"}
    group = await WorkerGroup.start(start_plainly, ["-c", code], [environment], attempt, 0, logs)
    async with asyncio.timeout(PATIENCE):
        return await group.wait()


def kept(volume: Path, *, rank: int = 1, attempt: int = 1) -> list[str]:
    return (volume / contract.log_file(attempt, rank)).read_text().splitlines()


# --- Whose lines go where ------------------------------------------------------------------------------------


def test_the_pod_log_has_rank_0_and_the_end_of_a_failed_rank_and_the_volume_has_all(make_group: MakeGroup) -> None:
    """Known failure A25: the evidence is gone with the pod."""
    group = make_group("fail", "1", "1", "1").start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    said = re.findall(STAMP + r"rankzero: (the end of .*)\n" + STAMP + r"(\[.*)", group.pods[1].output, re.MULTILINE)
    assert said == [
        ("the end of what rank 1 printed:", "[attempt 1 rank 1 last lines] RuntimeError: as the test asked")
    ]
    assert "[attempt" not in group.pods[0].output
    [line] = kept(group.state_dir)
    assert re.fullmatch(STAMP + r"\[attempt 1 rank 1\] RuntimeError: as the test asked", line)


def test_the_lines_of_rank_0_are_in_the_pod_log_and_not_told_twice(make_group: MakeGroup) -> None:
    group = make_group("fail", "0", "1", "1", nodes=1).start()
    group.wait_for_workers(2, 1)
    group.release()
    assert group.pods[0].wait() == 0
    lines = re.findall(STAMP + r"\[.*", group.pods[0].output, re.MULTILINE)
    assert [line[9:] for line in lines] == ["[attempt 1 rank 0] RuntimeError: as the test asked"]
    assert kept(group.state_dir, rank=0) == lines


def test_all_ranks_go_to_the_pod_log_where_that_is_asked_for(make_group: MakeGroup) -> None:
    group = make_group("fail", "1", "1", "1", logRanks="all", logFileLimit=0).start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.pods[1].output.count("[attempt 1 rank 1] RuntimeError: as the test asked") == 1
    assert "last lines" not in group.pods[1].output
    assert not (group.state_dir / contract.LOGS_DIR).exists()


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (b"", ""),
        (b"\x1b[1;31mError\x1b[0m: \x1b]0;title\x07bad", "Error: bad"),
        (b" 10%|#   |\r 90%|### |\r", " 90%|### |"),
        (b"caf\xc3\xa9\t\xff", "caf\u00e9\t\ufffd"),
        (b"x" * 1000, "x" * LAST_LINE_LENGTH),
    ],
)
def test_a_record_keeps_a_line_as_a_terminal_would_leave_it(printed: bytes, line: str) -> None:
    assert plain(printed) == line


# --- Much output ---------------------------------------------------------------------------------------------


def test_a_worker_that_prints_100_000_lines_a_second_starves_nobody(tmp_path: Path) -> None:
    pauses: list[float] = []
    code = (
        "import os, time\nblock = b'0123456789 0123456789\\n' * 1000\nlines, end = 0, time.monotonic() + 2\n"
        "while time.monotonic() < end: lines += os.write(1, block) // 22\nprint(lines, 'lines')\nraise SystemExit(1)"
    )

    async def beat() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            pauses.append(time.monotonic() - before)

    async def scenario() -> WorkerFailed | None:
        beats = asyncio.create_task(beat())
        output = logs(tmp_path, [])
        failure = await run(code, output)
        await output.close()
        beats.cancel()
        return failure

    failure = asyncio.run(scenario())
    assert failure is not None
    lines = int(failure.last_lines[-1].split()[0])
    print(f"{lines / 2:.0f} lines/s, {len(pauses)} beats, the longest pause {max(pauses):.3f} s")
    # On two cores with ten programs beside it 2,400,000 lines and a tenth of a second; who is silent for 15 s is lost.
    assert lines / 2 > 100_000
    assert max(pauses) < 5


def test_a_file_is_cut_at_its_limit_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []

    async def scenario() -> None:
        output = logs(tmp_path, said, log_file_limit=1)
        await run(FLOOD % 100 + "\nprint('the end'); raise SystemExit(1)", output)
        await output.close()

    asyncio.run(scenario())
    *lines, last = kept(tmp_path)
    assert last == "-- cut here: launch.logFileLimit is 1 MiB --"
    assert all(line.endswith("0123456789 0123456789") for line in lines)
    assert 2**20 - 100 < (tmp_path / contract.log_file(1, 1)).stat().st_size < 2**20 + 100
    assert said == []


def test_the_last_lines_are_kept_whatever_the_files_hold(tmp_path: Path) -> None:
    code = "for n in range(200): print('line', n)\nprint('no line end', end=''); raise SystemExit(1)"
    failure = asyncio.run(run(code, logs(tmp_path, [], log_file_limit=0)))
    assert failure is not None
    assert failure.last_lines == [*(f"line {n}" for n in range(200 - LAST_LINES + 1, 200)), "no line end"]


# --- A bad volume --------------------------------------------------------------------------------------------


def test_a_hanging_volume_holds_up_neither_the_workers_nor_the_end_of_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO without a reader hangs like a file server that is away."""
    monkeypatch.setattr("rankzero.launch.logs.FLUSH_WITHIN", 0.2)
    path = tmp_path / contract.log_file(1, 1)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    said: list[str] = []

    async def scenario() -> bytes:
        output = logs(tmp_path, said)
        await run(FLOOD % 600, output)  # more than is queued
        await output.close()
        assert len(said) == 1
        assert "the checkpoint volume did not take all output within" in said[0]
        await run("print('next attempt')", output, attempt=2)
        monkeypatch.setattr("rankzero.launch.logs.FLUSH_WITHIN", 1000.0)
        async with asyncio.timeout(PATIENCE):
            await output.close()  # known to hang: not waited for again
        reader = await asyncio.create_subprocess_exec("cat", path, stdout=asyncio.subprocess.PIPE)
        text, _ = await reader.communicate()  # the file server is back
        await run("print('last attempt')", output, attempt=3)
        await output.close()
        return text

    text = asyncio.run(scenario()).decode()
    [missing] = re.findall(r"^-- (\d+) lines are missing here --$", text, re.MULTILINE)
    assert len(re.findall(r"9$", text, re.MULTILINE)) + int(missing) == 600_000
    assert kept(tmp_path, attempt=2)[0].endswith("next attempt")
    assert kept(tmp_path, attempt=3)[0].endswith("last attempt")


def test_lines_that_a_full_volume_refuses_are_counted_and_told_once(tmp_path: Path) -> None:
    path = tmp_path / contract.log_file(1, 1)
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    said: list[str] = []

    async def scenario() -> None:
        output = logs(tmp_path, said)
        await run(FLOOD % 5, output)
        await output.close()
        await output.close()

    asyncio.run(scenario())
    assert said == [f"5000 lines of output are not in {path.parent}: No space left on device"]


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_volume_that_has_room_again_gets_the_following_lines_and_a_mark_of_the_gap(small_volume: Path) -> None:
    ballast = small_volume / "ballast"
    ballast.write_bytes(bytes(32 * 1024))

    async def scenario() -> None:
        output = logs(small_volume, [])
        log = output.open(1, 1)
        log.write(b"\n".join(b"first %d" % n for n in range(3000)))
        while not has_failed(output):
            await asyncio.sleep(0.01)
        ballast.unlink()
        log.write(b"second")
        await output.close()

    asyncio.run(scenario())
    lines = kept(small_volume)
    assert lines[-1].endswith("[attempt 1 rank 1] second")
    [mark] = re.findall(r"^-- (\d+) lines are missing here --$", "\n".join(lines), re.MULTILINE)
    assert lines[-2] == f"-- {mark} lines are missing here --"
    whole = [line for line in lines if re.search(r"first \d+$", line)]
    assert len(whole) in {3000 - int(mark), 3000 - int(mark) + 1}  # the last one may be cut


def has_failed(output: Logs) -> bool:
    return any(file.reason for file in output._files)


def test_the_launcher_ends_though_the_volume_hangs(tmp_path: Path) -> None:
    path = tmp_path / contract.log_file(1, 0)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    code = (
        "import asyncio, pathlib, sys; from rankzero.config import LaunchConfig; "
        "from rankzero.launch import logs; logs.FLUSH_WITHIN = 0.2; "
        "logs = logs.Logs(LaunchConfig(script='-'), pathlib.Path(sys.argv[1]), print); "
        "logs.open(1, 0).write(b'x'); asyncio.run(logs.close())"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=PATIENCE, check=True)
