"""``make drill``: run one drill, or all, on the local cluster or on that of KUBECONFIG."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rankzero.errors import ConfigError, RankzeroError
from scripts.cache import REPO
from scripts.drill import ground as grounds
from scripts.drill import results
from scripts.drill.catalogue import DRILLS, UNDISTURBED, named
from scripts.drill.evidence import Evidence
from scripts.drill.ground import STRATEGIES, Ground
from scripts.drill.judge import Verdict
from scripts.drill.plan import Drill, Power
from scripts.drill.runner import evidence_folder, perform
from scripts.entry import guarded
from scripts.stages import Stages

LONGEST_CAUSE = 160
NAME_COLUMN = Column("drill", no_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 where every drill held, 1 where one fell short, an error's own status where one could not run."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what a drill made and broke is put right
    options = parse(arguments)
    console = Console(highlight=False, soft_wrap=True)
    if options.drills == ["list"]:
        list_all(console)
        return 0
    wanted = list(DRILLS) if options.drills == ["all"] else [named(name) for name in options.drills]
    if options.keep and options.cluster != "lab":
        raise ConfigError(
            "--keep is for the local cluster: bench/results has what can be compared",
            hint=f"leave it out; {results.LATEST.relative_to(REPO)} has the results of this cluster",
        )
    stages = Stages()
    prepare = grounds.local if options.cluster == "lab" else grounds.existing
    ground = replace(prepare(stages, options.image, tuple(options.values)), strategy=options.strategy)
    if options.drills == ["all"] and not ground.is_lab:
        wanted = [drill for drill in wanted if drill.power is Power.API]
        left_out = [drill.name for drill in DRILLS if drill.power is Power.NODES]
        stages.say(f"left out, since they close a node to new pods: {', '.join(left_out)}; ask for them by name")
    verdicts = {drill: run(drill, ground, stages, keep=options.keep) for drill in in_order(wanted, ground)}
    if options.output == "json":
        print(results.LATEST.read_text(encoding="utf-8"))  # noqa: T201
    else:
        show(verdicts, console)
    return 1 if any(verdict.shortfalls for verdict in verdicts.values()) else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; what `make` passes on stands in the environment."""
    parser = argparse.ArgumentParser(prog="make drill", description=__doc__)
    parser.add_argument("drills", nargs="+", metavar="NAME", help="`list`, `all`, or names of drills")
    parser.add_argument("--cluster", choices=("lab", "existing"), default=os.environ.get("CLUSTER") or "lab")
    parser.add_argument("--image", default=os.environ.get("IMAGE") or "", help="image that the nodes can pull")
    parser.add_argument(
        "--values", action="append", default=[], metavar="FILE", help="values that this cluster needs (storage class)"
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default=STRATEGIES[0], help="whether all ranks hold the state, or a part each"
    )
    parser.add_argument("--keep", action="store_true", help="also write to bench/results/drills.json, for the table")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


def in_order(wanted: list[Drill], ground: Ground) -> list[Drill]:
    """The undisturbed run comes first where it is asked for, or is not there yet for this image."""
    others = [drill for drill in wanted if drill is not UNDISTURBED]
    is_there = bool(Evidence.read(evidence_folder(UNDISTURBED, ground)).result)
    return others if is_there and others == wanted else [UNDISTURBED, *others]


def run(drill: Drill, ground: Ground, stages: Stages, *, keep: bool = False) -> Verdict:
    """One drill; whatever keeps it from taking place is a shortfall, so that the others still run."""
    undisturbed = None if drill.name == UNDISTURBED.name else Evidence.read(evidence_folder(UNDISTURBED, ground))
    with stages(f"Drill {drill.name}"):
        try:
            verdict = perform(drill, ground, undisturbed, stages)
        except RankzeroError as error:
            verdict = Verdict(None, (), 0, (str(error),))
        except Exception as error:
            traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"a bug of the drill, in {Path(where.filename).name} line {where.lineno}: {error!r}"
            verdict = Verdict(None, (), 0, (said,))
    for shortfall in verdict.shortfalls:
        stages.say(f"fell short: {shortfall}")
    if verdict.misses(drill):
        stages.say(f"warning: {verdict.seconds} s, {drill.target:g} s are aimed at")
    results.add(drill, verdict, ground, keep=keep)
    return verdict


def list_all(console: Console) -> None:
    """Every drill with what it does and what must happen."""
    table = Table(NAME_COLUMN, "needs", "what is done", "what must happen", "within", "target")
    for drill in DRILLS:
        table.add_row(drill.name, drill.power.value, drill.done, drill.expected, *times(drill))
    console.print(table)


def show(verdicts: dict[Drill, Verdict], console: Console) -> None:
    """What came of each. What others said is quoted as it is: brackets in it are not markup."""
    table = Table(NAME_COLUMN, "result", "seconds", "since struck", "allowed", "target", "steps repeated")
    for drill, verdict in verdicts.items():
        result = ("fell short", "red") if verdict.shortfalls else ("passed", "green")
        if not verdict.shortfalls and verdict.misses(drill):
            result = ("passed, target missed", "yellow")
        spans = ["-" if seconds is None else f"{seconds:.1f}" for seconds in (verdict.seconds, verdict.since_struck)]
        table.add_row(drill.name, Text.assemble(result), *spans, *times(drill), str(verdict.steps_repeated))
    console.print(table)
    for drill, verdict in verdicts.items():
        for cause in verdict.causes:
            short = cause if len(cause) <= LONGEST_CAUSE else f"{cause[:LONGEST_CAUSE]}..."
            console.print(f"{drill.name}: {short}", markup=False)


def times(drill: Drill) -> tuple[str, str]:
    """What a drill allows, and what it aims at."""
    return f"{drill.within:g} s", "" if drill.target is None else f"{drill.target:g} s"


if __name__ == "__main__":
    sys.exit(guarded(main))
