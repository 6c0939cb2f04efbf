"""What a pod takes of its node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import environment, minimal, pod_spec, render, trainer
from tests.chart.test_objects import notes

WHOLE = {"gpus": 2, "cpu": 16, "memory": "64Gi"}


def resources(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = trainer(render(minimal(changes))).get("resources", {})
    return found


def test_rdma_devices_and_huge_pages_are_asked_for_beside_gpus() -> None:
    asked = {
        "resources": {**WHOLE, "gpuResource": "example.com/gpu", "hugepages": {"2Mi": "4Gi", "1Gi": "2Gi"}},
        "network.fabric": {"preset": "infiniband", "resource": {"name": "rdma/hca", "count": 4}},
    }
    wanted = {
        "example.com/gpu": 2,
        "cpu": "16",
        "memory": "64Gi",
        "hugepages-2Mi": "4Gi",
        "hugepages-1Gi": "2Gi",
        "rdma/hca": 4,
    }
    assert resources(asked) == {"limits": wanted, "requests": wanted}


def test_every_container_of_a_guaranteed_pod_asks_for_what_it_may_use() -> None:
    """The CPU manager gives whole CPUs of their own only to pods in which all containers do."""
    pod = pod_spec(render(minimal({"resources": {**WHOLE, "guaranteed": True}})))
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        limits = container["resources"]["limits"]
        assert limits == container["resources"]["requests"]
        assert {"cpu", "memory"} <= limits.keys()


def test_cpus_follow_the_gpus_on_demand() -> None:
    assert resources({"resources": {"gpus": 4, "cpu": "auto"}})["limits"]["cpu"] == "32"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"gpus": 8, "cpu": ""}, "no CPUs are set aside for data loading. 8 to 12 a GPU are usual, here 64 to 96."),
        ({"gpus": 8, "cpu": 63}, "resources.cpu is 63 for 8 GPUs, fewer than 8 each"),
        ({"gpus": 1, "cpu": "7900m"}, "resources.cpu is 7900m for 1 GPUs, fewer than 8 each"),
        ({"gpus": 8, "cpu": 97}, "resources.cpu is 97 for 8 GPUs, more than 12 each"),
        ({"gpus": 8, "cpu": 64}, ""),
        ({"gpus": 8, "cpu": 96}, ""),
        ({"gpus": 8, "cpu": "auto"}, ""),
        ({"gpus": 0, "cpu": ""}, ""),
    ],
    ids=str,
)
def test_the_notes_mind_cpus_that_do_not_fit_the_gpus(given: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    said = notes(tmp_path, {"resources": given})
    assert sentence in said
    assert ("Mind" in said) is bool(sentence)


def test_a_pod_that_asks_for_no_gpu_sees_none_under_a_default_runtime_of_nvidia() -> None:
    """Images on CUDA say `all`, which that runtime takes for all of the node's."""
    name = "NVIDIA_VISIBLE_DEVICES"
    assert environment(render(minimal({"resources.gpus": 0})))[name] == "void"
    assert name not in environment(render(minimal({"resources.gpus": 1})))
