"""Kills for memory are told from others, on a real cgroup v1; the files of v2 are written by hand."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankzero.launch import memory
from rankzero.launch.budget import give_up
from rankzero.launch.last_words import LastWords
from rankzero.launch.memory import Cgroup, KillCount, Memory, own_cgroup, size
from rankzero.launch.protocol import WorkerFailed
from tests.launch.conftest import MakeGroup
from tests.waiting import until

pytestmark = pytest.mark.slow

MIB = 2**20
MakeCgroup = Callable[[int], Path]
FAILED = WorkerFailed(1, 0, 0, 0, 1, "", "RuntimeError: DataLoader worker (pid 7) is killed", [], 0.0)
KILLED = dataclasses.replace(FAILED, exit_code=137, signal="SIGKILL", error="")


@pytest.fixture
def make_cgroup() -> Iterator[MakeCgroup]:
    """Makes a memory cgroup with a limit in MiB, below that of this process."""
    made: list[Path] = []

    def make(limit: int) -> Path:
        own = own_cgroup()
        if own is None or own.events != "memory.oom_control" or not os.access(own.folder, os.W_OK):
            pytest.skip("needs cgroup v1 and the right to make one")
        folder = own.folder / f"rankzero-test-{secrets.token_hex(4)}"
        folder.mkdir()
        made.append(folder)
        (folder / "memory.limit_in_bytes").write_text(str(limit * MIB))
        return folder

    yield make
    for folder in made:
        until(lambda at=folder: not (at / "cgroup.procs").read_text(), what="the cgroup is empty")  # type: ignore[misc]
        folder.rmdir()


# --- Killed for memory, or not -------------------------------------------------------------------------------


def test_a_worker_that_is_killed_for_memory_is_told_so_with_the_limit(
    make_cgroup: MakeCgroup, make_group: MakeGroup
) -> None:
    """Known failure A22: out of memory without a word."""
    group = make_group("hoard", "0", "400", "1", nodes=1)
    group.pods[0].cgroup = make_cgroup(160)
    group.start().wait_for_workers(2, 1)
    group.release()
    assert group.pods[0].wait() == 0
    failure = group.attempt(1)["cause"]["failure"]
    assert (failure["signal"], failure["out_of_memory"]) == ("SIGKILL", True)
    assert failure["error"].startswith(
        "killed for memory: limit 160 MiB, peak 160 MiB; raise resources.memory or lower"
    )
    assert "killed for memory: limit 160 MiB" in group.attempt(1)["cause"]["reason"]


def test_a_worker_that_is_killed_by_somebody_is_not_taken_for_one_without_memory(
    make_cgroup: MakeCgroup, make_group: MakeGroup
) -> None:
    group = make_group("wait", nodes=1)
    group.pods[0].cgroup = make_cgroup(400)
    worker = group.start().wait_for_workers(1, 1)[0]
    os.kill(int(worker["pid"]), signal.SIGKILL)
    group.wait_for_workers(2, 1)
    group.release()
    assert group.pods[0].wait() == 0
    failure = group.attempt(1)["cause"]["failure"]
    assert (failure["out_of_memory"], failure["error"]) == (False, "killed from outside, not for memory")


def test_a_worker_whose_child_was_killed_for_memory_says_so_beside_its_own_error(make_cgroup: MakeCgroup) -> None:
    """A data loader process is the victim, and PyTorch only says that it was killed."""
    folder = make_cgroup(50)
    count = KillCount(memory.v1(folder))
    assert count.explain(FAILED) == FAILED
    hoard = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(folder)]
    assert subprocess.run([*hoard, sys.executable, "-c", "b'x' * 2**28"], check=False).returncode == -signal.SIGKILL
    told = count.explain(FAILED)
    assert told.out_of_memory
    said = f"{FAILED.error}; a process of its pod was killed for memory: limit 50 MiB, peak 50 MiB; raise"
    assert told.error.startswith(said)
    assert KillCount(memory.v1(folder)).explain(FAILED) == FAILED  # the next attempt begins anew


def test_without_a_count_nothing_is_claimed(tmp_path: Path) -> None:
    for cgroup in (None, memory.v1(tmp_path), memory.v2(tmp_path)):
        assert KillCount(cgroup).explain(KILLED) == KILLED


def test_a_kill_from_outside_at_the_same_step_twice_is_not_the_scripts_error() -> None:
    def attempt(failure: WorkerFailed) -> dict[str, object]:
        cause = {"kind": "worker", "reason": failure.summary, "failure": dataclasses.asdict(failure)}
        return {"started": 0.0, "ended": 1.0, "last_step": 7, "cause": cause}

    outside = dataclasses.replace(KILLED, error="killed from outside, not for memory")
    assert give_up([attempt(outside)] * 2, limit=3) == ""
    memory = dataclasses.replace(KILLED, error="killed for memory: limit 1 MiB", out_of_memory=True)
    assert give_up([attempt(memory)] * 2, limit=3).startswith("the same error at the same step twice")


# --- Last words ----------------------------------------------------------------------------------------------


def test_a_container_that_is_killed_as_a_whole_leaves_how_full_its_memory_was(
    make_cgroup: MakeCgroup, make_group: MakeGroup
) -> None:
    """Known failure A22. The kill is ours; the memory, the limit and the file are real."""
    group = make_group("hoard", "1", "120", "1")
    group.pods[1].cgroup = make_cgroup(200)
    group.start(uid="").wait_for_workers(1, 2)
    pod = group.pods[1]
    words = pod.tmp / f"rankzero-last-words-{group.uid('uid-1-1')}.json"
    until(lambda: in_use(pod.tmp) > 120 * MIB, what="the memory is taken")
    pod.delete()
    pod.start(uid="uid-1-1")
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    cause = group.attempt(1)["cause"]
    assert cause["kind"] == "container"
    said, _, share = cause["reason"].rpartition("; memory was at ")
    assert said.endswith("its container ended by itself")
    percent, _, rest = share.partition(" ")
    assert 60 <= int(percent) <= 100
    assert rest == "% of 200 MiB when last seen"
    assert not words.exists()  # it ended in order


def test_rank_0_tells_its_own_last_words(make_cgroup: MakeCgroup, make_group: MakeGroup) -> None:
    group = make_group("hoard", "0", "120", "1", nodes=1)
    group.pods[0].cgroup = make_cgroup(200)
    group.start(uid="uid").wait_for_workers(1, 1)
    until(lambda: in_use(group.pods[0].tmp) > 120 * MIB, what="the memory is taken")
    group.pods[0].delete()
    group.start(uid="uid").wait_for_workers(2, 1)
    group.release()
    assert group.pods[0].wait() == 0
    said, _, share = group.attempt(1)["cause"]["reason"].partition("; ")
    assert said == "rank 0's container ended by itself and was started again"
    assert share.endswith(" % of 200 MiB when last seen")


def in_use(tmp: Path) -> int:
    """Bytes, as the last words in a pod's temporary folder have them."""
    return max((int(json.loads(words.read_text())["in_use"]) for words in tmp.glob("rankzero-last-words-*")), default=0)


def test_a_pods_first_start_and_a_damaged_file_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert LastWords("uid", None, lambda: 0).before == ""
    (tmp_path / "rankzero-last-words-uid.json").write_text("{")
    assert LastWords("uid", None, lambda: 0).before == ""


# --- Where the numbers stand ---------------------------------------------------------------------------------


def write_v2(folder: Path, **files: str) -> Cgroup:
    """Not a real cgroup v2, which this machine may lack: files of its shape."""
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return memory.v2(folder)


EVENTS = "low 0\nhigh 0\nmax 311\noom 2\noom_kill %d\noom_group_kill 0\n"


def test_cgroup_v2_is_read(tmp_path: Path) -> None:
    cgroup = write_v2(
        tmp_path,
        memory_events=EVENTS % 1,
        memory_current=f"{300 * MIB}\n",
        memory_peak=f"{512 * MIB}\n",
        memory_max=f"{512 * MIB}\n",
        memory_stat=f"anon 1\nfile 2\ninactive_file {100 * MIB}\n",
    )
    assert cgroup.memory() == Memory(in_use=200 * MIB, peak=512 * MIB, limit=512 * MIB)
    count = KillCount(cgroup)
    assert count.explain(KILLED).error == "killed from outside, not for memory"
    write_v2(tmp_path, memory_events=EVENTS % 2)
    assert "killed for memory: limit 512 MiB, peak 512 MiB; raise" in count.explain(KILLED).error


def test_without_a_limit_and_without_a_peak_it_is_the_node_that_had_no_memory_left(tmp_path: Path) -> None:
    """memory.peak is newer than v2 itself."""
    cgroup = write_v2(tmp_path, memory_events=EVENTS % 0, memory_current=f"{20 * 2**30}\n", memory_max="max\n")
    assert cgroup.memory() == Memory(in_use=20 * 2**30, peak=None, limit=None)
    count = KillCount(cgroup)
    write_v2(tmp_path, memory_events=EVENTS % 1)
    assert count.explain(KILLED).error == (
        "killed for memory: no limit, peak unknown, so its node had none left; "
        "set resources.memory to what the pod needs on every node"
    )


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "expected"),
    [
        ("4:memory:/kubepods/pod1/c1\n0::/\n", "9 8 0:1 /kubepods/pod1/c1 {0} ro - cgroup cgroup rw,memory", "."),
        ("4:memory:/kubepods/pod1/c1\n0::/\n", "9 8 0:1 / {0} ro - cgroup cgroup rw,memory", "kubepods/pod1/c1"),
        ("4:memory:/\n", "9 8 0:1 /../.. {0} ro shared:1 - cgroup cgroup rw,memory", "."),
        ("0::/\n", "9 8 0:1 / {0} ro - cgroup2 cgroup rw,nsdelegate", "."),
        ("0::/app\n", "9 8 0:1 / {0} ro - cgroup2 cgroup rw", "app"),
    ],
)
def test_the_own_cgroup_is_found_in_every_kind_of_container(
    tmp_path: Path, cgroup: str, mountinfo: str, expected: str
) -> None:
    proc, point = tmp_path / "proc", tmp_path / "point"
    folder = point / expected
    folder.mkdir(parents=True)
    proc.mkdir()
    (folder / "memory.usage_in_bytes").write_text("1")
    (folder / "memory.current").write_text("1")
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text("1 2 0:3 / / rw - ext4 /dev/vda rw\n" + mountinfo.format(point) + "\n")
    found = own_cgroup(proc)
    assert found is not None
    assert found.folder == folder


def test_where_no_memory_can_be_read_there_is_no_cgroup(tmp_path: Path) -> None:
    assert own_cgroup(tmp_path) is None
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_text(f"9 8 0:1 / {tmp_path} ro - cgroup2 cgroup rw\n")  # v2's root has no such files
    assert own_cgroup(tmp_path) is None


def test_sizes_are_those_of_kubernetes() -> None:
    assert [size(512 * MIB), size(200 * 2**30)] == ["512 MiB", "200.0 GiB"]
