"""Which checkpoints stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint import manifest
from rankzero.train.checkpoint.layout import Layout, step_of


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


def metrics_of(paths: Mapping[int, Path]) -> dict[int, float]:
    """By step, what ``train.checkpoint.best`` compares, of those checkpoints that have it."""
    found = {}
    for step, path in paths.items():
        try:
            metric = manifest.read(path).get("metric")
        except (OSError, ValueError, AttributeError):  # a damaged one is the best of nothing
            continue
        if isinstance(metric, int | float):
            found[step] = float(metric)
    return found


def clean(layout: Layout, config: CheckpointConfig, saved: int, held: Collection[int] = ()) -> None:
    """Delete what need not stay. Rank 0, when ``saved`` is durable and nothing is being written.

    Those of ``held`` steps are being read.
    """
    paths = {step_of(path): path for path in layout.finished()}
    stay = kept(
        paths,
        saved,
        last=config.keep,
        every=config.keep_every,
        best=config.best,
        metrics=metrics_of(paths) if config.best != "none" else None,
    )
    stay.update(held)
    for path in [*layout.leftovers(), *(path for step, path in paths.items() if step not in stay)]:
        try:
            layout.remove(path)
        except OSError as error:  # no reason to end a run whose checkpoint is safe
            print(f"checkpoint {path.name} could not be removed: {error.strerror or error}", flush=True)
