"""Every drill. Limits are for a machine of two cores on which all pods run; what is aimed at is ``target``."""

from __future__ import annotations

from rankzero.errors import ConfigError
from scripts.drill.catalogue import machines, pods, processes, script, surroundings
from scripts.drill.plan import Drill

UNDISTURBED = Drill(
    name="undisturbed",
    done="nothing",
    expected="the run ends with status 0; its losses and weights are what all others are compared with",
    within=30,
    quick=True,
)

DRILLS = (
    UNDISTURBED,
    *processes.DRILLS,
    *pods.DRILLS,
    *machines.DRILLS,
    *script.DRILLS,
    *surroundings.DRILLS,
)


def named(name: str) -> Drill:
    """The drill of that name. Raises :class:`ConfigError`."""
    for drill in DRILLS:
        if drill.name == name:
            return drill
    raise ConfigError(f"there is no drill {name!r}", hint=f"there are: {', '.join(drill.name for drill in DRILLS)}")
