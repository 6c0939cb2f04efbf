"""From the seconds of single steps to what the library costs. Pairs are compared: the two steps of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.result_file import at_most

Seconds = Mapping[str, Mapping[str, Sequence[float]]]
"""bare | library -> wall | processor -> seconds of each step."""
TARGET = 0.01


def of_run(seconds: Seconds) -> dict[str, float]:
    """Of one run: both loops' median step, ms, and the median of what each turn's library step took more."""
    found = {f"{name}_ms": 1000 * median(seconds[name]["wall"]) for name in ("bare", "library")}
    return found | {f"overhead_{clock}": _more(seconds, clock) for clock in ("wall", "processor")}


def _more(seconds: Seconds, clock: str) -> float:
    pairs = zip(seconds["library"][clock], seconds["bare"][clock], strict=True)
    return median(library - bare for library, bare in pairs) / median(seconds["bare"][clock])


def document(runs: Mapping[str, Sequence[Seconds]]) -> dict[str, Any]:
    """What the result file says: per case its runs and their medians, the targets, and scaling as it was found.

    Cases are named ``PROCESSES x BATCH``.
    """
    cases: dict[str, dict[str, Any]] = {}
    for case, several in runs.items():
        each = [of_run(seconds) for seconds in several]
        cases[case] = {
            "runs": [{key: round(value, 4) for key, value in run.items()} for run in each],
            **{key: round(median(run[key] for run in each), 4) for key in each[0]},
        }
    targets = {f"overhead, {case}": at_most(found["overhead_wall"], TARGET) for case, found in cases.items()}
    return {"cases": cases, "targets": targets, "scaling": scaling(cases)}


def scaling(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Samples per second and process with two processes, as a part of those with one."""
    return {
        batch: round(found["library_ms"] / cases[f"2 x {batch}"]["library_ms"], 3)
        for case, found in cases.items()
        for processes, _, batch in [case.partition(" x ")]
        if processes == "1" and f"2 x {batch}" in cases
    }
