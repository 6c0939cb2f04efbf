"""Three ways to run one script on two pods: this chart, and torchrun in a StatefulSet by static or c10d rendezvous.

All have the same image, script, settings, resources and kind of volume. What differs is what a person who knows
torchrun would write, with the known traps avoided. Only data here: the guides are made from it too.
"""

from __future__ import annotations

from dataclasses import dataclass

NAME = "recovery"
PODS = 2
SCRIPT = "/opt/rankzero/examples/drill.py"
PACE = 0.05
"""Seconds of pretended compute a step."""
ARGS = ["--steps", "10000000", "--pace", str(PACE)]
TRAIN = {"backend": "gloo", "logEverySteps": 1, "checkpoint": {"everySteps": 10}}


@dataclass(frozen=True)
class Form:
    """One way. ``rendezvous`` are torchrun's options, as a shell reads them; without any it is this chart."""

    key: str
    title: str
    choices: str
    """What was chosen and why, a sentence or two for the reader of the results."""
    rendezvous: tuple[str, ...] = ()


FORMS = (
    Form(
        key="rankzero",
        title="rankzero",
        choices="`helm install` of the chart with its defaults: warm spare on, all ranks save when a pod is deleted.",
    ),
    Form(
        key="torchrun-static",
        title="StatefulSet + torchrun, static",
        choices="Static rendezvous with the pod's index as node rank. torchrun restarts nothing, its default: the "
        "kubelet restarts the containers, and both sides meet anew. `--max-restarts` was not tried with it.",
        rendezvous=(
            "--rdzv-backend=static",
            "--node-rank=$POD_INDEX",
            f"--master-addr={NAME}-0.{NAME}",
            "--master-port=29500",
        ),
    ),
    Form(
        key="torchrun-c10d",
        title="StatefulSet + torchrun, c10d",
        choices="c10d rendezvous with `--max-restarts 100`. `is_host` is set from the pod's index, since torchrun's "
        "own guess compares host names and fails for the short name of a headless Service.",
        rendezvous=(
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={NAME}-0.{NAME}:29500",
            f"--rdzv-id={NAME}",
            '--rdzv-conf=is_host=$([ "$POD_INDEX" = 0 ] && echo true || echo false)',
            "--max-restarts=100",
        ),
    ),
)
KEYS = tuple(form.key for form in FORMS)
