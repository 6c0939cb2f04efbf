"""From two measured releases to targets."""

from __future__ import annotations

import dataclasses

from bench.scale.__main__ import MORE_REQUESTS, document
from bench.scale.measure import Measured

SMALL = Measured(
    pods=10,
    render_s=0.2,
    install_s=1.0,
    bound_s=2.0,
    endpoints_s=2.0,
    status_s=1.0,
    install_requests=40,
    status_requests=6,
    uninstall_requests=30,
)


def missed(**large: float) -> list[str]:
    targets = document(SMALL, dataclasses.replace(SMALL, pods=1000, **large))["targets"]  # type: ignore[arg-type]
    return [name for name, target in targets.items() if not target["met"]]


def test_requests_are_flat_when_the_large_release_takes_hardly_more_than_the_small_one() -> None:
    assert missed() == []
    assert missed(install_requests=40 + MORE_REQUESTS) == []
    assert missed(install_requests=41 + MORE_REQUESTS) == ["more_install_requests"]
    assert missed(status_requests=1006) == ["more_status_requests"]


def test_a_rendering_that_takes_too_long_misses_its_target() -> None:
    assert missed(render_s=2.1) == ["render_s"]
