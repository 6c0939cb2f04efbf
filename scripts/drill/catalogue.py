"""Every drill. Limits are for a machine of two cores on which all pods run; what is aimed at is in docs/drills.md."""

from __future__ import annotations

from rankzero import contract
from rankzero.errors import ConfigError
from scripts.drill import faults, node_faults
from scripts.drill.plan import EVERY_STEPS, Drill, Ending, Power, Record
from scripts.drill.release import CLAIM

UNDISTURBED = Drill(
    name="undisturbed",
    done="nothing",
    expected="the run ends with status 0; its losses and weights are what all others are compared with",
    within=30,
    quick=True,
)
STRUCK_POD = r"drill-1 \(node rank 1\)"
LEAVING = Record("stopped", rf"{STRUCK_POD} is leaving: its pod is being stopped")

DRILLS = (
    UNDISTURBED,
    Drill(
        name="worker-killed",
        done="SIGKILL to the training process of pod 1",
        expected="all workers start again in place, from the last checkpoint",
        within=15,
        disturb=faults.signal_worker(1, "SIGKILL"),
        causes=(Record("worker", r"rank 1 \(node rank 1\) .*SIGKILL"),),
        quick=True,
    ),
    Drill(
        name="launcher-killed",
        done="SIGKILL to PID 1 of pod 1",
        expected="the kubelet starts the container again; the group goes on from the last checkpoint",
        within=25,
        disturb=node_faults.kill_launcher(1),
        causes=(Record("container", rf"{STRUCK_POD} .*its container ended by itself"),),
        power=Power.LAB,
        quick=True,
    ),
    Drill(
        name="pod-0-deleted",
        done="`kubectl delete pod` of rank 0",
        expected="all ranks save and leave; the new pod takes the group over, and no step is repeated",
        within=30,
        disturb=faults.delete_pod(0),
        causes=(Record("stopped", r"drill-0 \(node rank 0\) is leaving"),),
        repeats=0,
        quick=True,
    ),
    Drill(
        name="pod-1-deleted",
        done="`kubectl delete pod` of rank 1",
        expected="all ranks save and leave; pod 0 stays, and no step is repeated",
        within=30,
        disturb=faults.delete_pod(1),
        causes=(LEAVING,),
        repeats=0,
    ),
    Drill(
        name="pod-force-deleted",
        done="`kubectl delete pod --force --grace-period=0` of rank 1",
        expected="the new pod is taken in and the old one is not taken for it; from the last checkpoint at worst",
        within=30,
        disturb=faults.delete_pod(1, "--force", "--grace-period=0"),
        causes=(Record("stopped|pod", STRUCK_POD),),
    ),
    Drill(
        name="all-pods-stopped",
        done="SIGTERM to PID 1 of every pod",
        expected="all ranks save at one step and leave; started again in place, they go on from it",
        within=40,
        disturb=faults.stop_all_pods,
        causes=(Record("stopped", "is leaving"),),
        repeats=0,
    ),
    Drill(
        name="node-drained",
        done="`kubectl drain` of pod 1's node, limited to the release's pods, then `kubectl uncordon`",
        expected="as when a pod is deleted; the successor starts when the node is free again",
        within=30,
        disturb=faults.drain_node,
        causes=(LEAVING,),
        repeats=0,
    ),
    Drill(
        name="node-stopped",
        done="the machine of pod 1 loses power and comes back",
        expected="the group waits for the pod without holding it against the script, and goes on with it",
        within=90,
        disturb=node_faults.stop_node,
        causes=(Record("pod|container", STRUCK_POD),),
        power=Power.LAB,
    ),
    Drill(
        name="rank-frozen",
        done="SIGSTOP to the training process of pod 1",
        expected="the stalled rank is named with its phase, the attempt ends, the next one goes on",
        within=45,
        disturb=faults.signal_worker(1, "SIGSTOP"),
        causes=(Record("stalled", "rank 1.*stopped by a signal"),),
        values={"launch": {"stall": {"least": 10}}},
    ),
    Drill(
        name="network-cut-short",
        done=f"all packets of pod 1 are dropped for {node_faults.CUT_FOR:g} s",
        expected="the attempt goes on where it stood: no restart, no step repeated",
        within=node_faults.CUT_FOR + 15,
        disturb=node_faults.cut_network(1, node_faults.CUT_FOR),
        repeats=0,
        power=Power.LAB,
        quick=True,
    ),
    Drill(
        name="network-cut",
        done="all packets of pod 1 are dropped for good",
        expected="after launch.rank0Timeout the run ends as failed and its pods are released; nobody waits for ever",
        within=75,
        disturb=node_faults.cut_network(1, None),
        causes=(Record("pod", rf"{STRUCK_POD} sent no heartbeat"),),
        ending=Ending("failed", contract.EXIT_RANK0_UNREACHABLE, "node rank 1 did not join within 20 s"),
        values={"launch": {"rank0Timeout": 20}},
        power=Power.LAB,
    ),
    Drill(
        name="error-always",
        done="the script raises at step 25 in every attempt",
        expected="the run ends as failed after the second attempt, with the script's status",
        within=30,
        causes=(Record("worker", "a drill made step 25 fail"),) * 2,
        arguments=("--fail-at", "25", "--fail-rank", "1", "--fail-attempts", "always"),
        ending=Ending("failed", 1, "the same error at the same step twice"),
        quick=True,
    ),
    Drill(
        name="error-once",
        done="the script raises at step 25 in the first attempt",
        expected="the next attempt goes on from the last checkpoint",
        within=15,
        causes=(Record("worker", r"rank 1 \(node rank 1\) .*a drill made step 25 fail"),),
        arguments=("--fail-at", "25", "--fail-rank", "1"),
    ),
    Drill(
        name="gpu-memory-error",
        done="one rank raises torch.OutOfMemoryError, as CUDA does",
        expected="the record names the rank and the error; the next attempt goes on",
        within=15,
        causes=(Record("worker", r"rank 0 \(node rank 0\) .*OutOfMemoryError: CUDA out of memory"),),
        arguments=("--fail-at", "25", "--fail-with", "oom"),
    ),
    Drill(
        name="checkpoint-damaged",
        done="one bit of the newest checkpoint flips, then a training process is killed",
        expected="the damaged checkpoint is left out and the one before it is taken",
        within=15,
        disturb=faults.damage_newest_checkpoint,
        causes=(Record("worker", r"rank 1 \(node rank 1\) .*SIGKILL"),),
        repeats=2 * EVERY_STEPS,
        least_repeats=EVERY_STEPS,
        quick=True,
    ),
    Drill(
        name="upgraded",
        done=f"`helm upgrade` sets train.learningRate to {faults.CHANGED_RATE} in mid-run",
        expected="all pods are replaced; the run goes on from the agreed step at the new rate",
        within=60,
        disturb=faults.change_learning_rate,
        causes=(Record("stopped", "is leaving"),),
        repeats=0,
        changed_rate=faults.CHANGED_RATE * 2,
    ),
    Drill(
        name="coordinator-crowded",
        done=f"{faults.CONNECTIONS} silent or senseless connections to the rendezvous port",
        expected="the attempt goes on",
        within=5,
        disturb=faults.crowd_the_coordinator,
        repeats=0,
    ),
    Drill(
        name="torchrun-killed",
        done="SIGKILL to the torchrun of pod 1, with launch.method torchrun",
        expected="its workers go too, and all start again in place from the last checkpoint",
        within=30,
        disturb=faults.kill_torchrun,
        causes=(Record("worker", r"node rank 1.*SIGKILL"),),
        values={"launch": {"method": "torchrun"}},
    ),
    Drill(
        name="memory-exhausted",
        done="one rank allocates more memory than its pod may have",
        expected="the kernel's kill is recorded as one for memory; the next attempt goes on",
        within=30,
        causes=(Record("worker|container", r"node rank 1.*memory"),),
        arguments=("--allocate-at", "25", "--allocate", "4096", "--fail-rank", "1"),
        quick=True,
    ),
    Drill(
        name="volume-full",
        done="the checkpoint volume is filled until a save fails, then freed",
        expected="the failed save is loud and ends nothing; the next one after that succeeds",
        within=60,
        prepare=node_faults.make_small_volume,
        disturb=node_faults.fill_volume,
        repeats=0,
        # One pod, since the volume is on one node; of two ranks, so that its bits can be compared.
        values={"nodes": 1, "procsPerNode": 2, "checkpoints": {"existingClaim": CLAIM}},
        all_metrics=False,
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
        done="a second release on the same nodes, both with the host network",
        expected="neither disturbs the other, and both end with the same bits",
        within=15,
        disturb=faults.install_another,
        repeats=0,
        arguments=("--pace", "0.4"),
        values={"network": {"hostNetwork": True}},
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


def named(name: str) -> Drill:
    """The drill of that name. Raises :class:`ConfigError`."""
    for drill in DRILLS:
        if drill.name == name:
            return drill
    raise ConfigError(f"there is no drill {name!r}", hint=f"there are: {', '.join(drill.name for drill in DRILLS)}")
