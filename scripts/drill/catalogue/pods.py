"""Pods that are taken away."""

from __future__ import annotations

from scripts.drill import faults
from scripts.drill.catalogue.records import (
    BOTH_REPLACED,
    LEAVING,
    POD_0_REPLACED,
    POD_1_REPLACED,
    POD_TARGET,
    RANK_0_LEAVING,
    STRUCK_POD,
)
from scripts.drill.plan import Drill, Record

DRILLS = (
    Drill(
        name="pod-0-deleted",
        done="`kubectl delete pod` of rank 0",
        expected="all ranks save and leave; pod 1 stays, the new pod takes the group over, and no step is repeated",
        within=30,
        target=POD_TARGET,
        disturb=faults.delete_pod(0),
        causes=(RANK_0_LEAVING,),
        repeats=0,
        pods=POD_0_REPLACED,
        quick=True,
    ),
    Drill(
        name="pod-1-deleted",
        done="`kubectl delete pod` of rank 1",
        expected="all ranks save and leave; pod 0 stays, and no step is repeated",
        within=30,
        target=POD_TARGET,
        disturb=faults.delete_pod(1),
        causes=(LEAVING,),
        repeats=0,
        pods=POD_1_REPLACED,
    ),
    Drill(
        name="pod-0-force-deleted",
        done="`kubectl delete pod --force --grace-period=0` of rank 0, which leads the group",
        expected="the new pod takes the group over, whether or not the old one still runs; from the last checkpoint at "
        "worst",
        within=30,
        target=POD_TARGET,
        disturb=faults.delete_pod(0, "--force", "--grace-period=0"),
        causes=(Record("pod", "^rank 0 was lost$", RANK_0_LEAVING),),
        pods=POD_0_REPLACED,
    ),
    Drill(
        name="pod-1-force-deleted",
        done="`kubectl delete pod --force --grace-period=0` of rank 1",
        expected="the new pod is taken in and the old one is not taken for it; from the last checkpoint at worst",
        within=30,
        target=POD_TARGET,
        disturb=faults.delete_pod(1, "--force", "--grace-period=0"),
        causes=(Record("pod", rf"{STRUCK_POD} (closed its connection|was replaced by a new pod)", LEAVING),),
        pods=POD_1_REPLACED,
    ),
    Drill(
        name="pod-evicted",
        done="an Eviction of pod 1, which is what `kubectl drain` asks for",
        expected="as when it is deleted",
        within=30,
        target=POD_TARGET,
        disturb=faults.evict_pod(1),
        causes=(LEAVING,),
        repeats=0,
        pods=POD_1_REPLACED,
    ),
    Drill(
        name="both-pods-evicted",
        done="an Eviction of pod 1 and at once one of pod 0, asked again and again",
        expected="the second is refused until the group is whole again, and then admitted",
        within=30,
        disturb=faults.evict_both_pods,
        causes=(LEAVING, RANK_0_LEAVING),
        pods=BOTH_REPLACED,
    ),
    Drill(
        name="upgraded",
        done=f"`helm upgrade` sets train.learningRate to {faults.CHANGED_RATE} in mid-run",
        expected="all pods are replaced, at once where the cluster knows maxUnavailable for StatefulSets; the run goes "
        "on from the agreed step at the new rate",
        within=60,
        disturb=faults.change_learning_rate,
        causes=(Record(LEAVING.kind, LEAVING.words, RANK_0_LEAVING),) * 2,
        optional_causes=1,
        pods=BOTH_REPLACED,
        repeats=0,
        changed_rate=faults.CHANGED_RATE * 2,
    ),
)
