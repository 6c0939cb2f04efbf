"""The plugin behind ``pytest --keep NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench import result_file


class KeptResults:
    """Adds each test, as it ends, to what the file says of earlier runs; a killed run keeps what it has done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._collected: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Before ``-m`` and ``-k`` choose: all tests that the given files have."""
        self._collected = {item.nodeid for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after setup, body and teardown of each test: the worst outcome counts, and the sum of their times."""
        test = report.nodeid
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
        if test not in self._outcomes or report.outcome != "passed":
            self._outcomes[test] = report.outcome
        if report.when == "teardown":
            self._keep(test)

    def _keep(self, test: str) -> None:
        kept: dict[str, Any] = result_file.read(self._name) or {}
        entry = {
            "outcome": self._outcomes[test],
            "seconds": round(self._seconds[test], 1),
            "machine": result_file.machine(),
        }
        tests = {name: one for name, one in kept.get("tests", {}).items() if not self._is_gone(name)}
        result_file.write(self._name, {"tests": dict(sorted({**tests, test: entry}.items())), "targets": {}})

    def _is_gone(self, test: str) -> bool:
        """Whether a test of an earlier run was renamed or removed since, as far as this run can tell."""
        files = {name.partition("::")[0] for name in self._collected}
        return test.partition("::")[0] in files and test not in self._collected
