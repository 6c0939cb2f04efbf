"""``pytest --keep NAME``: how each test ended, in ``bench/results/NAME.json``, for the tests that nobody runs daily."""

from __future__ import annotations

import pytest

from tests.kept_results import KeptResults


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", metavar="NAME", help="write each test's outcome and time to bench/results/NAME.json")


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("--keep"):
        config.pluginmanager.register(KeptResults(name))
