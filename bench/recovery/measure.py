"""The measurement itself: each disturbance meets a training of its own, form after form, as often as asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.recovery.events import INSTALL, POD_0, POD_1, WORKER
from bench.recovery.forms import Form
from bench.recovery.group import Group
from bench.recovery.summary import Samples, Seconds
from rankzero.errors import RankzeroError

SETTLED_AFTER = 100
"""Steps until a training is disturbed: it has left its start behind and has checkpoints to go on from."""

DISTURB: dict[str, Callable[[Group], float]] = {
    WORKER: Group.kill_worker,
    POD_1: lambda group: group.delete_pod(1),
    POD_0: lambda group: group.delete_pod(0),
}
"""How a training that runs is disturbed; each returns when."""

Tell = Callable[[Form, str, Seconds], None]


def measure(
    group: Group,
    forms: Sequence[Form],
    image: str,
    *,
    repetitions: int,
    give_up: float,
    tell: Tell,
    say: Callable[[str], None],
) -> Samples:
    """Seconds for every form and event; ``tell`` hears of each at once.

    Forms take turns, so that a machine that gets slower does so for all. What fails for reasons of the cluster is
    done once more, said to ``say``; raises :class:`RankzeroError` where it fails again.
    """
    samples: Samples = {form.key: {event: [] for event in (INSTALL, *DISTURB)} for form in forms}
    for _ in range(repetitions):
        for form in forms:
            for event in DISTURB:
                try:
                    found = disturb(group, form, image, event, give_up)
                except RankzeroError as error:
                    say(f"once more, since {error.message}")
                    found = disturb(group, form, image, event, give_up)
                for name, seconds in found.items():
                    samples[form.key][name].append(seconds)
                    tell(form, name, seconds)
    return samples


def disturb(group: Group, form: Form, image: str, event: str, give_up: float) -> dict[str, Seconds]:
    """Install ``form`` anew and disturb it once it trains: the seconds of both.

    One that did not come to train at all counts as not recovered either.
    """
    began = group.install(form, image)
    first = group.next_step(began, within=give_up)
    if first is None or not group.reaches(SETTLED_AFTER, within=give_up):
        return {INSTALL: first, event: None}
    at = DISTURB[event](group)
    return {INSTALL: first, event: group.next_step(at, within=give_up, resumed=True)}
