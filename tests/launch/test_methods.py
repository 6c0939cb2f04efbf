"""Ways to start a training: scripts and programs that know nothing of rankzero, in real gloo groups."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launch.conftest import MakeGroup
from tests.launch.pods import SCRIPT, PodGroup, unused_port
from tests.waiting import until

PLAIN = str(Path(__file__).with_name("plain_ddp.py"))
slow = pytest.mark.slow


def ranks(folder: Path, count: int = 4) -> list[dict[str, Any]]:
    """What each rank of plain_ddp.py left."""
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]


def train(make_group: MakeGroup, *, procs: int = 2, **launch: Any) -> PodGroup:
    """Two pods that run to the end."""
    group = make_group(nodes=2, procs=procs, **launch).start()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    return group


@slow
def test_a_plain_script_finds_its_group_in_the_environment(make_group: MakeGroup) -> None:
    """No import of rankzero, no torchrun: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, forked from the warm spare."""
    group = train(make_group, script=PLAIN, warm=True)
    found = ranks(group.folder)
    assert [one["world_size"] for one in found] == [4] * 4
    assert len({str(one["weights"]) for one in found}) == 1
    assert [one["local_rank_argument"] for one in found] == [-1] * 4


@slow
@pytest.mark.timeout(300)
def test_a_script_for_torch_distributed_launch_gets_what_that_hands_over(make_group: MakeGroup, tmp_path: Path) -> None:
    """Compared with PyTorch's own launcher, which a script of ten years ago was written for."""
    group = train(make_group, script=PLAIN, method="launch")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    command = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2", "--master_addr=localhost"]
    command += [f"--master_port={unused_port()}", PLAIN, str(theirs)]
    subprocess.run(command, check=True, capture_output=True, timeout=150)
    ours = [{**one, "arguments": one["arguments"][:-1]} for one in ranks(group.folder)]
    for rank, one in enumerate(ranks(theirs, 2)):
        assert one["arguments"][:-1] == [f"--local-rank={rank}"]
        for node in (0, 1):
            same = ours[2 * node + rank]
            assert same["arguments"] == one["arguments"][:-1]
            assert (same["local_rank"], same["local_rank_argument"]) == (one["local_rank"], one["local_rank_argument"])


@slow
@pytest.mark.timeout(300)
def test_a_torchrun_of_ones_own_runs_once_a_pod(make_group: MakeGroup) -> None:
    """`launch.command` with one process a pod: how any other launcher is started."""
    own = (
        "exec $0 -m torch.distributed.run --nnodes=$WORLD_SIZE --node-rank=$RANK --nproc-per-node=2 "
        '--rdzv-backend=static --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT "$@"'
    )
    group = train(make_group, procs=1, script="", command=["bash", "-c", own, sys.executable, PLAIN])
    found = ranks(group.folder)
    assert [one["world_size"] for one in found] == [4] * 4
    assert [one["local_rank"] for one in found] == ["0", "1"] * 2


def test_a_program_is_started_once_a_rank_with_the_arguments_after_it(make_group: MakeGroup) -> None:
    command = ["sh", "-c", 'echo "$RANK of $WORLD_SIZE: $*" > "$1/said-$RANK"; shift; exit 0', "name"]
    group = train(make_group, script="", command=command)
    said = [(group.folder / f"said-{rank}").read_text() for rank in range(4)]
    assert said == [f"{rank} of 4: {group.folder}\n" for rank in range(4)]
    assert "launch.command is set: it is started plainly" in group.pods[0].output


def test_a_program_that_fails_restarts_the_group_and_its_status_is_recorded(make_group: MakeGroup) -> None:
    wrapped = ["sh", "-c", f'exec {sys.executable} {SCRIPT} "$@"', "name"]
    group = make_group("fail", "3", "7", "1", nodes=2, procs=2, script="", command=wrapped).start()
    until(lambda: len(group.workers(2)) == 4, what="attempt 2")
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    failure = group.attempt(1)["cause"]["failure"]
    assert (failure["rank"], failure["exit_code"]) == (3, 7)


def test_a_program_that_is_not_there_is_named_before_anything_starts(make_group: MakeGroup) -> None:
    group = make_group(nodes=1, script="", command=["no-such-program"]).start()
    assert group.pods[0].wait() == 64
    assert "launch.command: no-such-program is no program in this pod" in group.pods[0].output
