"""From raw seconds to medians, targets and a table. A value that is None took longer than the limit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from bench.recovery.events import EVENTS, INSTALL, POD_0, POD_1, WORKER
from bench.recovery.forms import FORMS, KEYS
from bench.result_file import at_most

Seconds = float | None
Samples = dict[str, dict[str, list[Seconds]]]
"""Form -> event -> the seconds of each repetition."""
OURS = KEYS[0]
TARGETS = {"worker_killed_s": 1.5, "pod_deleted_s": 10.0, "install_to_first_step_s": 10.0}


def document(samples: Samples, give_up: float) -> dict[str, Any]:
    """What the result file says of the times: per form and event, and the targets where ours was measured."""
    times = {
        form: {event: spread(values, give_up) for event, values in events.items()} for form, events in samples.items()
    }
    ours = times.get(OURS, {})
    for events in times.values():
        for event, found in events.items():
            found["ratio_to_ours"] = ratio(found, ours.get(event), give_up)
    return {"times": times, "targets": targets(ours) if ours else {}}


def spread(values: Sequence[Seconds], give_up: float) -> dict[str, Any]:
    """Median and spread; ``shown`` has ``>LIMIT`` in place of a value that never came."""
    known = [math.inf if value is None else value for value in values]
    found = {"median": statistics.median(known), "min": min(known), "max": max(known)}
    return {
        "values_s": [_rounded(value) for value in known],
        "censored": sum(value is None for value in values),
        **{f"{name}_s": _rounded(value) for name, value in found.items()},
        "shown": {name: f">{give_up:g}" if math.isinf(value) else f"{value:.1f}" for name, value in found.items()},
    }


def ratio(found: dict[str, Any], ours: dict[str, Any] | None, give_up: float) -> str:
    """How many times as long as ours a form's median is; a lower bound where it never came, empty without ours."""
    if ours is None or ours["median_s"] is None:
        return ""
    median = found["median_s"]
    return f"{median / ours['median_s']:.1f}" if median is not None else f">{give_up / ours['median_s']:.1f}"


def targets(ours: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Our medians beside what they should be; of the two pods the worse one counts."""
    pods = [ours[event]["median_s"] for event in (POD_0, POD_1)]
    values = {
        "worker_killed_s": ours[WORKER]["median_s"],
        "pod_deleted_s": None if None in pods else max(pods),
        "install_to_first_step_s": ours[INSTALL]["median_s"],
    }
    return {name: at_most(values[name], target) for name, target in TARGETS.items()}


def table(found: dict[str, Any]) -> list[list[str]]:
    """Rows of cells, the head first: an event a row, a form a column, seconds as `median (min to max), ratio`."""
    times = found["times"]
    forms = [form for form in FORMS if form.key in times]
    rows = [["seconds", *(form.title for form in forms)]]
    for event, title in EVENTS.items():
        rows.append([title, *(_cell(times[form.key][event], form.key) for form in forms)])
    return rows


def _cell(found: dict[str, Any], form: str) -> str:
    shown = found["shown"]
    text = f"{shown['median']} ({shown['min']} to {shown['max']})"
    return f"{text}, {found['ratio_to_ours']} x" if form != OURS and found["ratio_to_ours"] else text


def _rounded(value: float) -> Seconds:
    return None if math.isinf(value) else round(value, 3)
