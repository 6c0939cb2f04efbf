"""Drills on the real cluster: what is broken heals as its drill says, within its time, to the same bits.

Known failures A1, A5, A8, A9, A11, A16, A17, A22, A23, A24 and A25 each have one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from scripts.cache import REPO
from scripts.drill import ground as grounds
from scripts.drill import leftovers
from scripts.drill.__main__ import run
from scripts.drill.catalogue import DRILLS, UNDISTURBED
from scripts.drill.ground import Ground
from scripts.drill.plan import Drill
from scripts.lab import kube
from scripts.stages import Stages
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800, func_only=True)]

GONE_WITHIN = 300.0
SLOWER = 5
"""Times the drills' own limits, which are for a machine without other work; the guide has what was measured there."""


def patient(drill: Drill) -> Drill:
    """The drill with more time; and where a network is away for less than a heartbeat's limit, with a higher limit."""
    within = SLOWER * drill.within
    if drill.name != "network-cut-short":
        return replace(drill, within=within)
    return replace(drill, within=within, values={"launch": {"heartbeatTimeout": 60}})


CASES = [
    pytest.param(drill, id=drill.name, marks=() if drill.quick else pytest.mark.long)
    for drill in DRILLS
    if drill is not UNDISTURBED
]


@pytest.fixture(scope="module")
def ground(lab: None) -> Ground:  # noqa: ARG001
    """The local cluster with an image of the present code, on which a run without a drill has ended well."""
    found = grounds.local(Stages(), "", ())
    assert run(patient(UNDISTURBED), found, Stages()).shortfalls == ()
    return found


@pytest.mark.parametrize("drill", CASES)
def test_drill(drill: Drill, ground: Ground) -> None:
    verdict = run(patient(drill), ground, Stages())
    assert verdict.shortfalls == ()
    until(lambda: not leftovers.found(ground), timeout=GONE_WITHIN, what="the removal of what the drill made")


@pytest.mark.long
def test_a_drill_on_a_cluster_that_is_already_there(ground: Ground) -> None:
    """CLUSTER=existing takes the current KUBECONFIG and an image; what needs the machines below is refused."""
    environment = {
        **os.environ,
        "CLUSTER": "existing",
        "IMAGE": ground.image,
        "KUBECONFIG": str(kube.kubeconfig_path()),
        "PATH": os.pathsep.join([str(ground.helm.parent), str(ground.kubectl.parent), os.environ["PATH"]]),
    }
    command = [sys.executable, "-m", "scripts.drill", "worker-killed", "launcher-killed", "-o", "json"]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
    drills = json.loads(done.stdout)["drills"]
    assert drills["worker-killed"]["passed"]
    assert not drills["launcher-killed"]["passed"]
    assert "for the local cluster only" in drills["launcher-killed"]["notes"][0]
