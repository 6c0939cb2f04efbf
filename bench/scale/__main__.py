"""`python -m bench.scale`: a release of 1,000 pods on 1,000 simulated nodes of the local cluster.

Writes bench/results/scale.json. What is simulated are kubelets and containers; API server, controllers and scheduler
are real and share this machine's cores with everything else.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from dataclasses import asdict
from typing import Any

from bench import result_file
from bench.scale.counted import counter
from bench.scale.measure import Measured, release
from scripts.entry import guarded
from scripts.lab import programs, simulated
from scripts.stages import Stages

NODES, FEW = 1000, 10
RENDER_TARGET_S = 2.0
MORE_REQUESTS = 3
"""Requests that the large release may take beyond the small one: Helm asks once more where an answer is slow."""


def main() -> int:
    """Returns 0 where every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help=f"nothing is written for fewer than {NODES}")
    options = parser.parse_args()
    stages = Stages()
    small, large = measured(options.nodes, stages)
    found = document(small, large)
    if options.nodes == NODES:
        stages.say(f"written: {result_file.write('scale', found)}")
    for name, target in found["targets"].items():
        stages.say(f"{name}: {target['value']}, target {target['target']}: {'met' if target['met'] else 'missed'}")
    return 0 if all(target["met"] for target in found["targets"].values()) else 1


def measured(nodes: int, stages: Stages) -> tuple[Measured, Measured]:
    """A release of :data:`FEW` pods and one of as many as there are nodes. Leaves nothing behind."""
    namespace = f"scale-{uuid.uuid4().hex[:8]}"
    with simulated.nodes(nodes, stages) as kubelets, counter() as requests, simulated.namespace(namespace):
        with stages(f"A release of {FEW} pods"):
            small = release(namespace, FEW, requests, kubelets)
        with stages(f"A release of {nodes} pods"):
            large = release(namespace, nodes, requests, kubelets)
    return small, large


def document(small: Measured, large: Measured) -> dict[str, Any]:
    """The result file."""
    more = {
        f"more_{name}": result_file.at_most(getattr(large, name) - getattr(small, name), MORE_REQUESTS)
        for name in ("install_requests", "status_requests", "uninstall_requests")
    }
    return {
        "machine": {**result_file.machine(), "kubernetes": programs.kubernetes_version()},
        "settings": {
            "kwok": programs.module_version(simulated.FAMILY, simulated.MODULE),
            "nodes": large.pods,
            "gpus_per_pod": 8,
        },
        "releases": [asdict(small), asdict(large)],
        "targets": {"render_s": result_file.at_most(large.render_s, RENDER_TARGET_S), **more},
    }


if __name__ == "__main__":
    sys.exit(guarded(main))
