"""What the figures come to: targets, and the tables of docs/data.md."""

from __future__ import annotations

from typing import Any

WITHIN = 0.95
"""Of the fastest other reader's samples a second: the target of each cold and warm, each number of workers."""


def targets(rates: dict[str, Any]) -> dict[str, Any]:
    """rankzero against the fastest of the others, wherever both have a figure."""
    answer = {}
    for key, ours in rates["rankzero"].items():
        others = {name: found[key]["median"] for name, found in rates.items() if name != "rankzero" and key in found}
        if others:
            fastest = max(others, key=lambda name: others[name])
            ratio = round(ours["median"] / others[fastest], 3)
            answer[key] = {"value": ratio, "target": WITHIN, "met": ratio >= WITHIN, "fastest_peer": fastest}
    return answer


def exactness(document: dict[str, Any]) -> list[list[str]]:
    """A row a reader: each route, and what the reader brings with it."""
    routes = list(document["exactness"]["rankzero"])
    rows = [["samples of an epoch", *routes, "packages", "MB", "import, s"]]
    for name, found in document["exactness"].items():
        brought = document["dependencies"][name]
        figures = [f"{brought[key]:g}" for key in ("packages", "megabytes", "import_s")]
        rows.append([name, *(_route(found[route]) for route in routes), *figures])
    return rows


def speed(document: dict[str, Any]) -> list[list[str]]:
    """A row a reader: samples a second; then the targets."""
    rates = document["speed"]["samples_per_second"]
    cells = list(rates["rankzero"])
    rows = [["samples/s", *cells]]
    rows += [
        [name, *(f"{found[cell]['median']:,}" if cell in found else "fails" for cell in cells)]
        for name, found in rates.items()
    ]
    beside = [_beside(document["targets"].get(cell)) for cell in cells]
    return [*rows, [f"rankzero / fastest other, target {WITHIN:g}", *beside]]


def _beside(target: dict[str, Any] | None) -> str:
    if target is None:  # no other reader was measured
        return ""
    return f"{target['value']:.2f} ({target['fastest_peer']}){'' if target['met'] else ', **missed**'}"


def _route(found: dict[str, Any]) -> str:
    if "fails" in found:
        return "fails"
    said = [f"{found[key]} {key}" for key in ("missing", "repeated") if found[key]] or ["each once"]
    said += ["other batches"] * (not found.get("as_undisturbed", True))
    said += ["ranks take unequal steps"] * found["steps_differ"]
    return ", ".join(said)
