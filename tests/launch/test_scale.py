"""64 launchers on one machine: how fast a large group forms, and that it outlives a series of random losses."""

from __future__ import annotations

import random
import time

import pytest

from tests.launch.conftest import MakeGroup
from tests.waiting import until

NODES = 64
KILLS = 20
FORMED_WITHIN = 2.0
"""Seconds from the start of the last launcher until the attempt is opened."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_64_launchers_form_a_group_and_survive_20_random_kills(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=NODES, rank0Timeout=300, heartbeatTimeout=60)
    for pod in group.pods[:-1]:
        pod.start()
    rank0, last = group.pods[0], group.pods[-1]
    until(
        lambda: rank0.status().get("group", {}).get("absent") == [NODES - 1], timeout=300, what="all but one are here"
    )
    began = time.time()
    last.start()
    until(lambda: len(group.workers(1)) == NODES, timeout=120, what="all workers")
    formed = group.attempt(1)["started"] - began
    print(f"{NODES} launchers were a group {formed:.2f} s after the start of the last one")
    assert formed < FORMED_WITHIN

    draw = random.Random(0)
    for attempt in range(2, KILLS + 2):
        victim = draw.choice(group.pods)
        victim.delete()
        victim.start()
        until(lambda a=attempt: len(group.workers(a)) == NODES, timeout=240, what=f"all workers of attempt {attempt}")  # type: ignore[misc]
    group.release()
    assert {pod.wait(120) for pod in group.pods} == {0}
    assert group.outcome()["state"] == "succeeded"
