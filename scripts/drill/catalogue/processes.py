"""What is done to processes in the pods."""

from __future__ import annotations

from scripts.drill import faults, node_faults
from scripts.drill.catalogue.records import (
    BOTH_KEPT,
    ENDED_BY_ITSELF,
    KILLED_FROM_OUTSIDE,
    LEAVING,
    POD_0_RESTARTED,
    POD_1_RESTARTED,
    RANK_0_ENDED_BY_ITSELF,
    RANK_0_LEAVING,
    WORKER_TARGET,
)
from scripts.drill.plan import Drill, Fate, Power, Record

DRILLS = (
    Drill(
        name="worker-killed",
        done="SIGKILL to the training process of pod 1",
        expected="all workers start again in place, from the last checkpoint",
        within=15,
        target=WORKER_TARGET,
        disturb=faults.signal_worker(1, "SIGKILL"),
        causes=(KILLED_FROM_OUTSIDE,),
        pods=BOTH_KEPT,
        quick=True,
    ),
    Drill(
        name="launcher-killed",
        done="SIGKILL to PID 1 of pod 1",
        expected="the kubelet starts the container again; pod 0 stays, and the group goes on from the last checkpoint",
        within=25,
        disturb=node_faults.kill_launcher(1),
        causes=(ENDED_BY_ITSELF,),
        pods=POD_1_RESTARTED,
        power=Power.LAB,
        quick=True,
    ),
    Drill(
        name="launcher-0-killed",
        done="SIGKILL to PID 1 of pod 0, which leads the group",
        expected="pod 1 stops its workers and waits; the container of pod 0 is started again and goes on where the "
        "records of its predecessor end",
        within=25,
        disturb=node_faults.kill_launcher(0),
        causes=(RANK_0_ENDED_BY_ITSELF,),
        pods=POD_0_RESTARTED,
        power=Power.LAB,
    ),
    Drill(
        name="torchrun-killed",
        done="SIGKILL to the torchrun of pod 1, with launch.method torchrun",
        expected="its workers go too, and all start again in place from the last checkpoint",
        within=30,
        disturb=faults.kill_torchrun,
        causes=(
            Record(
                "worker",
                r"rank 1 \(node rank 1\) was ended by SIGKILL: torchrun itself, with all of its workers; "
                "killed from outside",
            ),
        ),
        values={"launch": {"method": "torchrun"}},
        pods=BOTH_KEPT,
    ),
    Drill(
        name="rank-frozen",
        done="SIGSTOP to the training process of pod 1",
        expected="the stalled rank is named with its phase, the attempt ends, the next one goes on",
        within=45,
        disturb=faults.signal_worker(1, "SIGSTOP"),
        causes=(Record("stalled", r"rank 1 is in phase \w+ after step \d+ .*: its process is stopped by a signal"),),
        pods=BOTH_KEPT,
        values={"launch": {"stall": {"least": 10}}},
    ),
    Drill(
        name="all-pods-stopped",
        done="SIGTERM to PID 1 of both pods at once",
        expected="all ranks save at one step and both containers end with status 75; started again in place, they go "
        "on from it",
        within=40,
        disturb=faults.stop_all_pods,
        causes=(Record(LEAVING.kind, LEAVING.words, RANK_0_LEAVING),),
        repeats=0,
        pods={0: Fate.RESTARTED, 1: Fate.RESTARTED},
    ),
)
