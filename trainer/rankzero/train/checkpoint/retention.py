"""Which checkpoints stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal


def kept(
    steps: Collection[int],
    saved: int,
    *,
    last: int,
    every: int = 0,
    best: Literal["none", "lowest", "highest"] = "none",
    metrics: Mapping[int, float] | None = None,
) -> set[int]:
    """The steps whose checkpoints stay, of all ``steps``, after that of step ``saved`` was written and verified.

    It stays itself, whatever else: it is the only one that is known to be whole. So do the ``last`` newest up to it,
    multiples of ``every`` (0: none for that reason), and the one with the best metric. What claims to be newer goes,
    since a run that saves a step has gone on from before it, because the rest was damaged.
    """
    past = sorted((step for step in {*steps, saved} if step <= saved), reverse=True)
    stay = {saved, *past[:last]}
    if every:
        stay.update(step for step in past if step % every == 0)
    known = {step: metric for step, metric in (metrics or {}).items() if step in past and metric == metric}
    if known and best != "none":
        target = min(known.values()) if best == "lowest" else max(known.values())
        stay.add(max(step for step, metric in known.items() if metric == target))
    return stay
