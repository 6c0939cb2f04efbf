"""What is done to the machines below the pods, and to their network."""

from __future__ import annotations

from rankzero import contract
from scripts.drill import faults, node_faults
from scripts.drill.catalogue.records import (
    BOTH_KEPT,
    ENDED_BY_ITSELF,
    LEAVING,
    POD_0_RESTARTED,
    POD_1_REPLACED,
    POD_1_RESTARTED,
    RANK_0_ENDED_BY_ITSELF,
    STRUCK_POD,
)
from scripts.drill.plan import Drill, Ending, Power, Record

DRILLS = (
    Drill(
        name="node-drained",
        done="`kubectl drain` of pod 1's node, limited to the release's pods, then `kubectl uncordon`",
        expected="as when a pod is deleted, once the node is open again; the drain is part of the time",
        within=40,
        disturb=faults.drain_node,
        causes=(LEAVING,),
        repeats=0,
        pods=POD_1_REPLACED,
        power=Power.NODES,
    ),
    Drill(
        name="node-restarted",
        done="the machine of pod 1 is stopped at once and started again; its connections are closed by its kernel",
        expected="the group waits for the pod and goes on with it; it counts as a container that ended by itself",
        within=90,
        disturb=node_faults.restart_node(1),
        causes=(ENDED_BY_ITSELF,),
        pods=POD_1_RESTARTED,
        power=Power.LAB,
    ),
    Drill(
        name="node-power-lost",
        done="the machine of pod 1 falls silent without closing a connection, stops, and is started again",
        expected="it is missed after launch.heartbeatTimeout; the group waits for the pod and goes on with it. No "
        "container is blamed, since none of them closed its connection",
        within=90,
        disturb=node_faults.cut_power(1),
        causes=(Record("pod", rf"{STRUCK_POD} sent no heartbeat for \d+ s$"),),
        pods=POD_1_RESTARTED,
        power=Power.LAB,
    ),
    Drill(
        name="node-0-stopped",
        done="the same with the machine of pod 0, which leads the group",
        expected="pod 1 stops its workers and waits; the group goes on when pod 0 is back",
        within=90,
        disturb=node_faults.cut_power(0),
        causes=(RANK_0_ENDED_BY_ITSELF,),
        pods=POD_0_RESTARTED,
        power=Power.LAB,
    ),
    Drill(
        name="node-away",
        done="as when power is lost, and the machine stays away until its node is NotReady and its pod was deleted",
        expected="the pod stays Terminating and no other is made, since nobody can confirm its end; the run waits, for "
        "launch.rank0Timeout at most, and goes on with a new pod when the machine is back. It does not count",
        within=120,
        disturb=node_faults.take_node_away(1),
        causes=(Record("pod", rf"{STRUCK_POD} sent no heartbeat for \d+ s$"),),
        values={"launch": {"rank0Timeout": 400}},
        pods=POD_1_REPLACED,
        power=Power.LAB,
    ),
    Drill(
        name="network-cut-short",
        done=f"all packets between pod 1 and others are dropped for {node_faults.CUT_FOR:g} s",
        expected="the attempt goes on where it stood: no restart, no step repeated",
        within=node_faults.CUT_FOR + 15,
        least=node_faults.CUT_FOR - 1,
        disturb=node_faults.cut_network(1, node_faults.CUT_FOR),
        repeats=0,
        pods=BOTH_KEPT,
        power=Power.LAB,
        quick=True,
    ),
    Drill(
        name="network-cut",
        done="all packets between pod 1 and others are dropped for good",
        expected="after launch.rank0Timeout the run ends as failed and its pods are released; nobody waits for ever",
        within=75,
        disturb=node_faults.cut_network(1, None),
        causes=(Record("pod", rf"{STRUCK_POD} sent no heartbeat"),),
        ending=Ending("failed", contract.EXIT_RANK0_UNREACHABLE, "node rank 1 did not join within 20 s"),
        values={"launch": {"rank0Timeout": 20}},
        power=Power.LAB,
    ),
    Drill(
        name="clock-stepped",
        done="the wall clock of pod 1 steps an hour ahead (libfaketime, monotonic clock untouched)",
        expected="the attempt goes on",
        within=5,
        prepare=node_faults.bring_faketime,
        disturb=node_faults.step_clock(1, 3600),
        repeats=0,
        values={
            "network": {"env": node_faults.FAKETIME_ENVIRONMENT},
            "datasets": [
                {
                    "name": "faketime",
                    "hostPath": {"path": node_faults.FAKETIME_FOLDER},
                    "mountPath": node_faults.FAKETIME_FOLDER,
                }
            ],
        },
        power=Power.LAB,
    ),
)
