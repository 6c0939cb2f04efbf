"""``make demo``: walk the whole road and say how it went."""

from __future__ import annotations

import argparse
import os
import sys
import time

from rich.console import Console

from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from scripts.demo import experiment, road
from scripts.demo.follow import follow
from scripts.demo.report import Report, show, write
from scripts.entry import guarded
from scripts.stages import Stages


def main() -> int:
    """Returns 0 where every part held, 1 where one fell short, an error's own status where one could not run."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "cluster",
        nargs="?",
        choices=("lab", "existing"),
        default=os.environ.get("CLUSTER") or "lab",
        help="lab builds a cluster on this machine; existing uses the current KUBECONFIG and needs IMAGE",
    )
    parser.add_argument("--image", default=os.environ.get("IMAGE") or "", help="image that the nodes can pull")
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    stages = Stages()
    return _walk(options.cluster, options.image, stages, console)


def _walk(cluster: str, image: str, stages: Stages, console: Console) -> int:
    began = time.time()
    ground = road.local(stages, image) if cluster == "lab" else road.existing(stages, image)
    api = connect(ground.kubeconfig)
    run = Run(api, experiment.NAMESPACE, experiment.RELEASE)
    run_id = experiment.new_run_id()
    with stages("Installing the experiment"):
        experiment.uninstall(ground, run)
        installed = time.time()
        experiment.install(ground, run_id)
    console.print(f"\nTraining {run_id}: 2 pods x 2 processes; at {experiment.DELETE_AT:.0%} one pod is deleted.\n")
    with stages("Training", quiet=True):
        story = follow(run, run_id, console)
    report = Report.of(story, stages.seconds, installed=installed, began=began, ground=ground, run_id=run_id)
    path = write(report)
    show(report, path, console)
    return 1 if report.shortfalls else 0


if __name__ == "__main__":
    sys.exit(guarded(main))
