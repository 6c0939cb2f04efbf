"""``pytest --keep NAME``: how each test ended, in ``bench/results/NAME.json``, for the tests that nobody runs daily."""

from __future__ import annotations

import hypothesis
import pytest

from tests.kept_results import KeptResults

WAITING_TEST = 300
"""Seconds after which such a test hangs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", metavar="NAME", help="write each test's outcome and time to bench/results/NAME.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for processes or a cluster wait long where they must: see ``tests.waiting.PATIENCE``."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        waits = "make_group" in fixtures or any(item.get_closest_marker(name) for name in ("slow", "lab"))
        if waits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WAITING_TEST))


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried with the same values each time, and however long that takes on a busy machine."""
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=slow)
    hypothesis.settings.load_profile("tests")
    if name := config.getoption("--keep"):
        config.pluginmanager.register(KeptResults(name))
