"""The real API server accepts every golden rendering: validation and admission know what a schema cannot say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.generate import golden
from scripts.lab import kube
from tests.chart.rendering import documents
from tests.lab.conftest import Namespace

pytestmark = pytest.mark.lab

NOT_HERE = {"gang-values/PodGroup": "its PriorityClass", "ipv6-values/Service": "IPv6"}
"""Objects that need what the lab's cluster has not."""


@pytest.fixture
def runtime_class(lab: None) -> Iterator[None]:  # noqa: ARG001
    """A pod is admitted only where the class that it names is there."""
    name = "nvidia"
    one = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
    kube.kubectl("apply", "--filename", "-", stdin=json.dumps(one))
    yield
    kube.kubectl("delete", "runtimeclass", name)


@pytest.mark.usefixtures("runtime_class")
def test_the_api_server_accepts_every_golden_rendering(namespace: Namespace) -> None:
    served = kube.kubectl("api-versions").split()
    objects = [one for one in renderings(namespace.name) if one["apiVersion"] in served]
    assert len(objects) > 100
    # Pods are admitted with the account that they name.
    namespace.kubectl("create", "serviceaccount", golden.RELEASE)
    bundle = {"apiVersion": "v1", "kind": "List", "items": objects}
    accepted = namespace.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=json.dumps(bundle))
    assert accepted.count("(server dry run)") == len(objects)


def renderings(namespace: str) -> Iterator[dict[str, Any]]:
    """All objects of all scenarios, in this namespace and under names of their own."""
    for scenario in golden.scenarios():
        for manifest in documents(golden.path(scenario).read_text(encoding="utf-8")):
            for one in manifest["items"] if manifest["kind"] == "List" else [manifest]:
                if f"{scenario.stem}/{one['kind']}" not in NOT_HERE:
                    name = f"{scenario.stem}-{one['metadata']['name']}"
                    yield {**one, "metadata": {**one["metadata"], "name": name, "namespace": namespace}}
