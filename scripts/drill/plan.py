"""What a drill is: something that goes wrong, what must become of the run, and what its record must say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from scripts.drill.scene import Scene

EVERY_STEPS = 10
"""train.checkpoint.everySteps of experiments/drill.yaml."""


class Power(Enum):
    """What a drill has to be able to do."""

    API = "api"
    """kubectl and helm: any cluster."""
    NODES = "nodes"
    """Close a node to new pods for a moment: any cluster, but only where the drill is asked for by its name."""
    LAB = "lab"
    """Change the machines below the cluster: the local cluster only."""


@dataclass(frozen=True)
class Record:
    """What the record of one attempt must say: the kind of its cause, and words of the reason (both patterns)."""

    kind: str
    words: str
    instead: Record | None = None
    """What it may say as well, where the kernel or the kubelet decides which."""

    def fits(self, cause: Mapping[str, Any] | None) -> bool:
        """Whether a cause in attempts/NNNN.json says so."""
        if cause is None:
            return False
        says_so = re.fullmatch(self.kind, cause["kind"]) and re.search(self.words, cause["reason"])
        return bool(says_so) or (self.instead is not None and self.instead.fits(cause))

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" + (f", or {self.instead}" if self.instead else "")


class Fate(Enum):
    """What became of a pod between the event and the end of the run."""

    KEPT = "kept"
    """The same pod, its container never started again."""
    RESTARTED = "started again in place"
    """The same pod, its container started again."""
    REPLACED = "replaced"
    """Another pod of the same name."""


@dataclass(frozen=True)
class Ending:
    """How the run must end."""

    state: str = "succeeded"
    exit_code: int = 0
    words: str = ""
    """A pattern that the reason must match somewhere."""


def nothing(_: Scene) -> None:
    """The fault is in the script's arguments, or there is none."""


@dataclass(frozen=True, eq=False)
class Drill:
    """One drill. Times are seconds.

    ``within`` counts from the event to the next step, or to the end of a run that must end; where no attempt is to end
    it bounds the longest pause between two steps. The event is when
    ``disturb`` begins (or says so, see :meth:`Scene.strike_now` and :meth:`Scene.over_now`); without one it is the
    last step before the first attempt's end, and where no attempt is to end, the installation.
    """

    name: str
    done: str
    """What is done, for people."""
    expected: str
    """What must happen, for people."""
    within: float
    causes: tuple[Record, ...] = ()
    """Of all attempts but the last of a run that succeeds; empty: the attempt must go on."""
    optional_causes: int = 0
    """How many of ``causes``, from the last one, need not come: where it depends on the cluster."""
    least: float = 0.0
    """Seconds that it must take at least: what came sooner was not disturbed."""
    target: float | None = None
    """What is aimed at; slower is said, and is not a failure."""
    pods: Mapping[int, Fate] = field(default_factory=dict)
    """By node rank."""
    disturb: Callable[[Scene], None] = nothing
    prepare: Callable[[Scene], None] = nothing
    """Called before the installation; ``Scene.later`` takes what undoes it."""
    power: Power = Power.API
    at: int = 25
    """Step at which ``disturb`` is called; 0: right after the installation."""
    repeats: int = 2 * EVERY_STEPS
    """Most steps that may be trained again: 0 where all ranks can save before they leave.

    The newest checkpoint may still be in writing; the next save waits for it, so it is never two.
    """
    least_repeats: int = 0
    """Fewest steps that must be: more than 0 where the newest checkpoint cannot be the one to go on from."""
    ending: Ending = Ending()
    arguments: tuple[str, ...] = ()
    """Added to those of the script."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Laid over experiments/drill.yaml."""
    changed_rate: float | None = None
    """Learning rate of the attempts after the event; the final weights then differ from the undisturbed run's."""
    all_metrics: bool = True
    """Whether metrics.jsonl must be complete: not where the volume itself refuses writes."""
    quick: bool = False
    """Part of `make test`; the others are for `make test-long`."""
