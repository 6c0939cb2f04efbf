"""What a run needs beside its pods: the volume with its checkpoints, the rendezvous port, the nodes for itself."""

from __future__ import annotations

from scripts.drill import crowd, faults, node_faults, volume_faults
from scripts.drill.catalogue.records import BOTH_KEPT, ENDED_BY_ITSELF, KILLED_FROM_OUTSIDE, POD_1_RESTARTED
from scripts.drill.plan import EVERY_STEPS, Drill, Power
from scripts.drill.release import CLAIM

DRILLS = (
    Drill(
        name="checkpoint-damaged",
        done="one bit of the newest checkpoint flips, then a training process is killed",
        expected="the damaged checkpoint is left out and the one before it is taken",
        within=15,
        disturb=faults.damage_newest_checkpoint,
        causes=(KILLED_FROM_OUTSIDE,),
        pods=BOTH_KEPT,
        repeats=3 * EVERY_STEPS,
        least_repeats=EVERY_STEPS,
        quick=True,
    ),
    Drill(
        name="killed-in-save",
        done="SIGKILL to the training process of pod 1 while a checkpoint is being written "
        f"(at most {faults.SAVES_STRUCK} times, until one was not whole yet)",
        expected="the checkpoint that was not whole counts for nothing; the run goes on from the one before it",
        within=15,
        disturb=faults.kill_in_save,
        causes=(KILLED_FROM_OUTSIDE,) * faults.SAVES_STRUCK,
        optional_causes=faults.SAVES_STRUCK - 1,
        pods=BOTH_KEPT,
        repeats=2 * EVERY_STEPS * faults.SAVES_STRUCK,
        least_repeats=EVERY_STEPS,
    ),
    Drill(
        name="volume-full",
        done="the checkpoint volume is filled until a save fails, then freed",
        expected="the failed save is loud and ends nothing; the next one after that succeeds",
        within=60,
        prepare=volume_faults.make_small_volume,
        disturb=volume_faults.fill_volume,
        repeats=0,
        # One pod, since the volume is on one node; of two ranks, so that its bits can be compared.
        values={"nodes": 1, "procsPerNode": 2, "checkpoints": {"existingClaim": CLAIM}},
        all_metrics=False,
        power=Power.LAB,
    ),
    Drill(
        name="coordinator-crowded",
        done=f"{crowd.CONNECTIONS} connections that are silent, half a line or nonsense stand at the rendezvous port, "
        "those that are dropped are replaced; then SIGKILL to PID 1 of pod 1",
        expected="pod 1 gets in among them as if they were not there; all of them are dropped",
        within=25,
        disturb=crowd.kill_launcher_in_a_crowd,
        causes=(ENDED_BY_ITSELF,),
        pods=POD_1_RESTARTED,
        arguments=("--pace", "0.4"),
        power=Power.LAB,
    ),
    Drill(
        name="port-taken",
        done="with the host network, another program has the rendezvous port when the release is installed",
        expected="pod 0 ends with status 69 and says so; when the port is free, the run begins",
        within=120,
        prepare=node_faults.occupy_port,
        disturb=node_faults.free_port,
        at=0,
        repeats=0,
        values={"launch": {"rendezvousPort": node_faults.TAKEN_PORT}, "network": {"hostNetwork": True}},
        power=Power.LAB,
    ),
    Drill(
        name="two-releases",
        done="a second release on the same nodes, both with the host network (in namespaces that are labelled for the "
        "privileged pod security standard)",
        expected="neither disturbs the other, and both end with the same bits",
        within=15,
        disturb=faults.install_another,
        repeats=0,
        arguments=("--pace", "0.4"),
        values={"network": {"hostNetwork": True}},
    ),
)
