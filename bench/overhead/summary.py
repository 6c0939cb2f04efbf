"""From the seconds of turns to what the library costs. Turns are compared that followed each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.result_file import at_most

Seconds = Mapping[str, Mapping[str, Sequence[float]]]
"""bare | again | library -> wall | processor -> seconds of a step in each turn, the mean over the ranks."""
CLOCKS = ("wall", "processor")
TARGET = 0.01


def overhead(seconds: Seconds, clock: str) -> list[float]:
    """What a step of the library took more in each turn than the two bare loops, as a part of their median."""
    bare, again = (seconds[name][clock] for name in ("bare", "again"))
    step = median([*bare, *again])
    turns = zip(seconds["library"][clock], bare, again, strict=True)
    return [(library - (one + other) / 2) / step for library, one, other in turns]


def control(seconds: Seconds, clock: str) -> list[float]:
    """The same for the second bare loop beside the first."""
    bare, again = (seconds[name][clock] for name in ("bare", "again"))
    step = median([*bare, *again])
    return [(other - one) / step for one, other in zip(bare, again, strict=True)]


def spread(found: Sequence[float]) -> dict[str, float]:
    """The median, and between which of the values that of all such turns lies, with 95 % confidence.

    Of n values in order, those n/2 ± 0.98 sqrt(n): how many lie below the true median is binomial, whatever the
    distribution.
    """
    ordered = sorted(found)
    off = 0.98 * math.sqrt(len(ordered))
    low, high = math.floor((len(ordered) - 1) / 2 - off), math.ceil((len(ordered) - 1) / 2 + off)
    values = {"median": median(ordered), "low": ordered[max(low, 0)], "high": ordered[min(high, len(ordered) - 1)]}
    return {name: round(value, 4) for name, value in values.items()}


def of_case(runs: Sequence[Seconds]) -> dict[str, Any]:
    """Of all turns of several runs: the median steps, and what the library and the control cost."""
    found: dict[str, Any] = {
        f"{name}_ms": round(1000 * median(median(run[name]["wall"]) for run in runs), 2) for name in ("bare", "library")
    }
    for clock in CLOCKS:
        found[f"overhead_{clock}"] = spread([share for run in runs for share in overhead(run, clock)])
        found[f"control_{clock}"] = spread([share for run in runs for share in control(run, clock)])
    found["overhead_wall_of_each_run"] = [round(median(overhead(run, "wall")), 4) for run in runs]
    return found


def document(runs: Mapping[str, Sequence[Seconds]]) -> dict[str, Any]:
    """What the result file says: cases, the targets, and scaling as it was found.

    Cases are named ``PROCESSES x BATCH``.
    """
    cases = {case: of_case(several) for case, several in runs.items()}
    targets = {f"overhead, {case}": at_most(found["overhead_wall"]["median"], TARGET) for case, found in cases.items()}
    return {"cases": cases, "targets": targets, "scaling": scaling(cases)}


def scaling(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Samples per second and process with two processes, as a part of those with one, by the samples of a step."""
    return {
        batch: {
            loop: round(found[f"{loop}_ms"] / cases[f"2 x {batch}"][f"{loop}_ms"], 3) for loop in ("bare", "library")
        }
        for case, found in cases.items()
        for processes, _, batch in [case.partition(" x ")]
        if processes == "1" and f"2 x {batch}" in cases
    }
