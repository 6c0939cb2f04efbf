from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch.pods import PodGroup
from tests.launch.tls_api import ADDRESS, Api, serve

MakeGroup = Callable[..., PodGroup]


@pytest.fixture
def make_group(tmp_path: Path) -> Iterator[MakeGroup]:
    """Makes a group of pods that is gone when the test ends; its logs are shown where the test fails."""
    groups: list[PodGroup] = []

    def make(*args: str, nodes: int = 2, procs: int = 1, **launch: Any) -> PodGroup:
        groups.append(PodGroup(tmp_path, nodes=nodes, procs=procs, args=list(args), **launch))
        return groups[-1]

    yield make
    for group in groups:
        try:
            group.stop()
        finally:
            for pod in group.pods:
                print(f"--- pod {pod.node_rank}\n{pod.output}")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The Kubernetes API as this process would find it in a pod; ``api.account`` is the mounted account."""
    with serve(tmp_path / "account") as served:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", ADDRESS)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT_HTTPS", str(served.port))
        yield served
