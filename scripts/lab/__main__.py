"""The local cluster: `python -m scripts.lab up | down | status | ...`."""

from __future__ import annotations

import argparse
import sys

from scripts.entry import guarded
from scripts.lab import cluster, gpus, kube, programs, registry, surroundings
from scripts.lab.operators import catalogue, install
from scripts.stages import Stages


def main() -> int:
    """Returns the exit status; raises RankzeroError."""
    parser = argparse.ArgumentParser(prog="python -m scripts.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("up", "bring the cluster up, or repair it"),
        ("down", "remove the cluster and everything it made"),
        ("status", "say what is there"),
        ("node-image", "only build the image of a node"),
        ("gpus", "advertise the GPUs again, after a kubelet was restarted"),
        ("kubeconfig", "print the path of the kubeconfig"),
    ):
        commands.add_parser(name, help=what)
    push = commands.add_parser("push", help="push a local podman image for the nodes to pull")
    push.add_argument("image", help="as `podman images` names it, with its tag")
    run = commands.add_parser("run", help="run a command with the lab's kubectl, helm, kubeconfig and podman settings")
    run.add_argument("words", nargs="+", metavar="word", help="the command; after -- if it has options of its own")
    build = commands.add_parser("programs", help="only compile the pinned programs")
    build.add_argument("families", nargs="*", help=f"of {', '.join(programs.names())}; all if none is named")
    operators = commands.add_parser("operators", help="bring real operators into the running cluster, or take them out")
    operators.add_argument("action", choices=("up", "down", "build"))
    operators.add_argument("names", nargs="+", metavar="name", help=f"of {', '.join(catalogue.names())}")
    options = parser.parse_args()
    stages = Stages()
    match options.command:
        case "up":
            cluster.up(stages)
        case "down":
            cluster.down(stages)
        case "status":
            _print(cluster.status())
        case "programs":
            cluster.build_programs(stages, options.families)
        case "node-image":
            _print(cluster.build_node_image(stages))
        case "gpus":
            gpus.advertise()
        case "operators":
            actions = {"up": install.up, "down": install.down, "build": install.build}
            actions[options.action](stages, options.names)
        case "run":
            surroundings.replace_process(options.words)
        case "kubeconfig":
            _print(str(kube.kubeconfig_path()))
        case "push":
            with stages(f"Pushing {options.image}"):
                reference = registry.push(options.image)
            _print(reference)
    return 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(guarded(main))
