"""`python -m bench.recovery`: how long a training stands still after a failure, in three forms, on the local cluster.

Writes bench/results/recovery.json, from which docs/recovery.md has its table. Give it a quiet machine: two pods
that import PyTorch at once keep two cores busy.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import result_file
from bench.recovery import summary
from bench.recovery.events import EVENTS
from bench.recovery.forms import ARGS, FORMS, KEYS, SCRIPT, TRAIN, Form
from bench.recovery.group import Group
from bench.recovery.measure import SETTLED_AFTER, measure
from rankzero.cluster.api import connect
from rankzero.errors import ClusterError
from scripts.entry import guarded
from scripts.lab import kube, trainer_image
from scripts.stages import Stages

REPETITIONS, GIVE_UP = 5, 150.0
RESOLUTION = "times of log lines are the container runtime's, exact to a millisecond; a step takes 0.05 s at least"


def main() -> int:
    """Returns 0 where every target is met, else 1."""
    options = parse(sys.argv[1:])
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    forms = [form for form in FORMS if options.only in {None, form.key}]
    stages = Stages(console)
    if not kube.kubeconfig_path().exists() or not kube.is_api_ready():
        raise ClusterError("the local cluster is not there or does not answer", hint="make lab")
    image = options.image or trainer_image.provide_on_nodes(stages)
    group = Group(connect(str(kube.kubeconfig_path())))
    try:
        with stages("Warming up with one that does not count"):
            facts = warm_up(group, image, options.give_up)
        with _Display(console, total=options.repetitions * len(forms) * (2 * len(EVENTS) - 2)) as display:
            samples = measure(
                group,
                forms,
                image,
                repetitions=options.repetitions,
                give_up=options.give_up,
                tell=display.tell,
                say=display.say,
            )
    finally:
        group.remove()
    found = {
        **head(options, image, facts),
        **summary.document(samples, options.give_up),
    }
    if forms == list(FORMS):
        console.print(f"written: {result_file.write('recovery', found)}")
    else:
        console.print("not written: times of different runs do not belong into one file")
    if options.output == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        show(found)
    return 0 if all(target["met"] for target in found["targets"].values()) else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--repetitions", type=positive, default=REPETITIONS, help=f"of every event; {REPETITIONS}")
    parser.add_argument("--only", choices=KEYS, help="one form; nothing is written then")
    parser.add_argument(
        "--give-up", type=float, default=GIVE_UP, metavar="SECONDS", help=f"longest wait for a step; {GIVE_UP:g}"
    )
    parser.add_argument("--image", help="one that the nodes can pull; built and pushed if left out")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """A whole number above 0 from the command line."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def warm_up(group: Group, image: str, give_up: float) -> dict[str, str]:
    """Have the nodes read the image once, and ask for the versions in it. Raises :class:`ClusterError`."""
    if group.next_step(group.install(FORMS[0], image), within=give_up) is None:
        raise ClusterError(
            f"a first training made no step within {give_up:g} s",
            hint="try it by hand: helm install mnist charts/rankzero -f experiments/mnist.yaml --set image...",
        )
    return group.facts()


def head(options: argparse.Namespace, image: str, facts: dict[str, str]) -> dict[str, Any]:
    """Where and how it was measured."""
    return {
        "machine": {**result_file.machine(), **facts},
        "image": image.partition("/")[2],  # without the registry, which is this machine's own
        "settings": {
            "repetitions": options.repetitions,
            "give_up_s": options.give_up,
            "settled_after_steps": SETTLED_AFTER,
            "script": [SCRIPT, *ARGS],
            "train": TRAIN,
        },
        "resolution": RESOLUTION,
        "forms": {form.key: {"title": form.title, "choices": form.choices} for form in FORMS},
    }


def show(found: dict[str, Any]) -> None:
    """The table and the targets, for people."""
    console = Console(highlight=False)
    heading, *rows = summary.table(found)
    table = Table(*heading)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for name, target in found["targets"].items():
        value = "never" if target["value"] is None else f"{target['value']:.1f}"
        console.print(f"{name}: {value}, target {target['target']:g}: {'met' if target['met'] else 'missed'}")


class _Display:
    """A bar on a terminal and a line for each value."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("measuring", total=total)

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, form: Form, event: str, seconds: summary.Seconds) -> None:
        """One value more."""
        self._bar.advance(self._task)
        self.say(f"{form.title}: {EVENTS[event]}: {'no step' if seconds is None else f'{seconds:.2f} s'}")

    def say(self, text: str) -> None:
        """A line that stays; it may quote others, so nothing in it is markup."""
        self._console.print(f"  {text}", markup=False)


if __name__ == "__main__":
    sys.exit(guarded(main))
