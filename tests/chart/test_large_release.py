"""A release of 1,000 pods costs Helm what one of ten does."""

from __future__ import annotations

import time

import pytest

from scripts.generate.upgrades import rendered

PODS = 1000
WITHIN = 5.0
"""Seconds, the best of three: 0.3 on a quiet machine of today, and this one may be slow and busy."""


@pytest.mark.parametrize("kind", ["StatefulSet", "Job", "PyTorchJob", "TrainJob"])
def test_a_release_of_1000_pods_has_the_objects_of_one_of_10(kind: str) -> None:
    def names(pods: int) -> list[tuple[str, str]]:
        objects = rendered({"nodes": pods, "workload.kind": kind})
        return [(one["kind"], one["metadata"]["name"]) for one in objects if one["kind"] != "ConfigMap"]

    assert names(PODS) == names(10)


def test_a_release_of_1000_pods_renders_within_its_time() -> None:
    def seconds(attempt: int) -> float:
        began = time.monotonic()
        rendered({"nodes": PODS + attempt})  # another one each time, since renderings are kept
        return time.monotonic() - began

    assert min(seconds(attempt) for attempt in range(3)) < WITHIN
