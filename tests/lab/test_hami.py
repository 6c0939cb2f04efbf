"""The scenario for HAMi (experiments/hami.yaml) is placed by a scheduler of HAMi's name that counts card memory.

MOCK: HAMi is served by no registry of modules, so the scheduler is Kubernetes' own under that name, and it counts the
memory of a node's cards together, not by the card. What HAMi itself does was seen elsewhere and is held by goldens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scripts.lab import gpus, images
from scripts.lab.operators import install as operators
from scripts.lab.settings import GPUS_PER_WORKER, WORKERS
from scripts.stages import Stages
from tests.lab import releases
from tests.lab.conftest import Namespace
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[1]
CARD_MEMORY = 24576
OFFERED = {"nvidia.com/gpumem": GPUS_PER_WORKER * CARD_MEMORY, "nvidia.com/gpucores": GPUS_PER_WORKER * 100}
"""As HAMi's device plugin would of eight cards; on one node, so that the other cannot take the pod."""
PLACED_WITHIN = 200.0


@pytest.fixture(scope="module")
def hami(lab: None) -> Iterator[None]:  # noqa: ARG001
    """The scheduler, and a node that advertises what it counts."""
    try:
        operators.up(Stages(), ["hami-scheduler"])
        for resource, amount in OFFERED.items():
            gpus.offer(NODE, resource, amount)
        yield
    finally:
        for resource in OFFERED:
            gpus.offer(NODE, resource, None)
        operators.down(Stages(), ["hami-scheduler"])


def install(namespace: Namespace, **hami: object) -> None:
    """The scenario, as far as this machine can hold it: it has no runtime for GPUs, and no image with a trainer."""
    releases.install(
        namespace,
        "mnist",
        images.toolbox_reference(),
        "experiments/hami.yaml",
        resources={"cpu": "10m", "cpuBurst": True, "memory": "1Gi"},
        scheduling={"runtimeClassName": ""},
        hami=hami,
    )


def scheduled(namespace: Namespace) -> list[tuple[str, str]]:
    """Who has placed a pod, and what it says of it."""
    events = namespace.kubectl("get", "events", "--field-selector", "reason=Scheduled", "--output", "json")
    return [
        (one.get("reportingComponent") or one["source"]["component"], one["message"])
        for one in json.loads(events)["items"]
    ]


@pytest.mark.usefixtures("hami")
def test_parts_of_cards_are_placed_by_hami_s_scheduler_where_there_is_memory(namespace: Namespace) -> None:
    install(namespace)
    ((scheduler, message),) = until(lambda: scheduled(namespace), timeout=PLACED_WITHIN, what="a place for the pod")
    assert scheduler == "hami-scheduler"
    assert message.endswith(f"to {NODE.name}")
    (pod,) = releases.pods(namespace, "mnist").values()
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert {name: limits[name] for name in limits if name.startswith("nvidia.com/")} == {
        "nvidia.com/gpu": "2",
        # 12000 MiB, as the API writes a quantity.
        "nvidia.com/gpumem": "12k",
        "nvidia.com/gpucores": "50",
    }


@pytest.mark.usefixtures("hami")
def test_more_memory_than_the_node_has_waits_and_the_scheduler_says_for_what(namespace: Namespace) -> None:
    install(namespace, memory=OFFERED["nvidia.com/gpumem"] + 1)

    def reasons() -> list[str]:
        return [
            condition["message"]
            for pod in releases.pods(namespace, "mnist").values()
            for condition in pod["status"].get("conditions", [])
            if condition.get("reason") == "Unschedulable" and "gpumem" in condition["message"]
        ]

    until(reasons, timeout=PLACED_WITHIN, what="the reason why the pod waits")
    assert scheduled(namespace) == []
