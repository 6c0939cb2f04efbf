"""A release of 1,000 pods on simulated nodes: whole, and no dearer for the API than a small one.

KWOK plays kubelets and containers; API server, controllers and scheduler are real.
"""

from __future__ import annotations

import pytest

from bench.scale.__main__ import FEW, NODES, document, measured
from scripts.lab import kube, simulated
from scripts.stages import Stages

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1800)]


def test_a_release_of_1000_pods_is_bound_and_named_whole_and_asks_no_more_than_one_of_10(lab: None) -> None:  # noqa: ARG001
    small, large = measured(NODES, Stages())
    assert (small.pods, large.pods) == (FEW, NODES)
    targets = document(small, large)["targets"]
    assert {name for name, target in targets.items() if not target["met"]} == set()
    assert large.install_requests > 0
    assert large.status_requests > 0
    assert kube.kubectl("get", "nodes", "--selector", simulated.SELECTOR, "--output", "name") == ""
